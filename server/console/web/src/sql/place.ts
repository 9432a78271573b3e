// Where in the editor an error of the server is.

/** A place in the editor, and what is wrong there. */
export interface Mark {
  from: number;
  to: number;
  message: string;
}

/** The word at a position of the server, which counts characters from 1, in a text that begins somewhere in the editor. */
export function mark(text: string, from: number, position: number, message: string): Mark {
  const before = [...text].slice(0, Math.max(0, position - 1)).join("").length;
  const word = /^("[^"]*"|'[^']*'|[\p{L}\p{N}_$]+|.)/su.exec(text.slice(before))?.[0] ?? "";
  const start = from + before;
  return { from: word === "" ? Math.max(0, start - 1) : start, to: start + word.length, message };
}
