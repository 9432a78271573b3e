// A result as a file.
import type { Result } from "../result";

function field(text: string): string {
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The type of the elements of an array; `undefined`: it is no type of arrays. */
function elementType(type: string): string | undefined {
  return type.startsWith("_") ? type.slice(1) : type.endsWith("[]") ? type.slice(0, -2) : undefined;
}

/** A JSON text in its parts: an array in its elements, each as it is written. */
function elements(json: string): string[] {
  const found: string[] = [];
  let [depth, inText, from] = [0, false, 1];
  for (let at = 1; at < json.length; at++) {
    const sign = json[at];
    if (inText) {
      if (sign === "\\") at++;
      else if (sign === '"') inText = false;
    } else if (sign === '"') inText = true;
    else if (sign === "[" || sign === "{") depth++;
    else if (depth > 0 && (sign === "]" || sign === "}")) depth--;
    else if (depth === 0 && (sign === "," || sign === "]")) {
      const text = json.slice(from, at).trim();
      if (text !== "") found.push(text);
      from = at + 1;
    }
  }
  return found;
}

/** An array as PostgreSQL writes it, and COPY reads it: `{1,NULL,"a b"}`. `json`: as the server sends it. */
export function arrayText(json: string, element: string): string {
  const isJson = element === "json" || element === "jsonb";
  const texts = elements(json).map((text) => {
    if (text.startsWith("[") && !isJson) return arrayText(text, element);
    if (text === "null") return "NULL";
    const value = text.startsWith('"') && !isJson ? (JSON.parse(text) as string) : text;
    return value === "" || /[{}",\\\s]|^null$/i.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
  });
  return `{${texts.join(",")}}`;
}

/** Comma-separated values with a header; NULL is nothing, the empty text two quotes. */
export function csv(result: Result): string {
  const arrays = result.columns.map((column) => elementType(column.type));
  const head = result.columns.map((column) => field(column.name)).join(",");
  const value = (cell: string, at: number) => {
    const element = arrays[at];
    return field(element !== undefined && cell.startsWith("[") ? arrayText(cell, element) : cell);
  };
  const rows = result.rows.map((row) => row.map((cell, at) => (cell === null ? "" : value(cell, at))).join(","));
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
