// Which page is shown, by the part of the address behind `#`, and what one page hands to another.
import { signal } from "@preact/signals";

export type Page = "overview" | "sql" | "time" | "room";

export interface Route {
  page: Page;
  /** What of it: a node of the graph. */
  of: string | undefined;
}

function read(): Route {
  const [page, of] = location.hash.replace(/^#\/?/, "").split("/");
  const known: Page = page === "sql" || page === "time" || page === "room" ? page : "overview";
  return { page: known, of: of === undefined || of === "" ? undefined : decoded(of) };
}

/** What somebody wrote into the address may be no encoding of anything: then it is what it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal<Route>(read());
addEventListener("hashchange", () => (route.value = read()));

/** Shows a page. */
export function go(page: Page, of?: string): void {
  location.hash = `#/${page}${of ? `/${encodeURIComponent(of)}` : ""}`;
}

/** A text for the editor, and whether to follow it. */
export const handedSql = signal<{ sql: string; live: boolean } | undefined>(undefined);
/** A view or a query whose time is to be looked at. */
export const handedTime = signal<{ view?: string; query?: string } | undefined>(undefined);

export function openSql(sql: string, live = false): void {
  handedSql.value = { sql, live };
  go("sql");
}

export function openTime(view?: string, query?: string): void {
  handedTime.value = { view, query };
  go("time");
}
