// The few pictures: strokes on a grid of 16.

const PATHS = {
  stream: "M1.500 5.500c2-2 3.300-2 5 0s3 2 5 0 2.500-1.500 3-1.500M1.500 10.500c2-2 3.300-2 5 0s3 2 5 0 2.500-1.500 3-1.500",
  table: "M2 3h12v10H2zM2 6.500h12M6.500 6.500V13",
  "materialized view": "M1.500 8S4 3.500 8 3.500 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8zM8 6.200a1.800 1.800 0 1 0 0 3.600 1.800 1.800 0 0 0 0-3.600",
  view: "M1.500 8S4 3.500 8 3.500 14.500 8 14.500 8 12 12.500 8 12.500 1.500 8 1.500 8z",
  sink: "M8 2v8M4.500 7 8 10.500 11.500 7M2.500 13.500h11",
  source: "M8 10.500v-8M4.500 6 8 2.500 11.500 6M2.500 13.500h11",
  "external table": "M4 1.500h5.500L13 5v9.500H4zM9.500 1.500V5H13",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M13 3l-1.100 1.100M4.100 11.900 3 13",
  moon: "M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7z",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  play: "M4.500 2.500v11l9-5.500z",
  stop: "M4 4h8v8H4z",
  live: "M8 6.500a1.500 1.500 0 1 0 0 3 1.500 1.500 0 0 0 0-3M4.800 4.800a4.500 4.500 0 0 0 0 6.400M11.200 4.800a4.500 4.500 0 0 1 0 6.400M2.800 2.800a7.400 7.400 0 0 0 0 10.400M13.200 2.800a7.400 7.400 0 0 1 0 10.400",
  clock: "M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13M8 4.500V8l2.500 2",
  down: "M8 2v8M4.500 7 8 10.500 11.500 7M3 13.500h10",
  graph: "M2 8h3M11 4.500H8.500L6 8l2.500 3.500H11M11 3h3v3h-3zM11 10h3v3h-3zM2 6.500h3v3H2z",
  code: "M5 4 1.500 8 5 12M11 4l3.500 4-3.500 4",
  gauge: "M2 11.500a6 6 0 1 1 12 0M8 11.500l3-4",
} as const;

export type IconName = keyof typeof PATHS;

/** A picture beside a text that says the same. */
export function Icon({ name }: { name: IconName | string }) {
  const path = (PATHS as Record<string, string>)[name] ?? PATHS.table;
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}
