// A result as a file.
import type { Result } from "../result";

function field(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Comma-separated values with a header; NULL is nothing, the empty text two quotes. */
export function csv(result: Result): string {
  const head = result.columns.map((column) => field(column.name)).join(",");
  const rows = result.rows.map((row) => row.map((cell) => (cell === null ? "" : field(cell))).join(","));
  return `${[head, ...rows].join("\n")}\n`;
}

/** Has the browser save it. */
export function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
