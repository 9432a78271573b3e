// The text of an editor, kept while another page is shown, and in this tab over a reload.
import { isMine } from "../api";
import { hasSecret } from "./past";

/** Longer texts are kept while the page is open only. */
const TEXT_MAX = 1_000_000;

/** See the file. A text with a secret in it is kept while the page is open only. */
export class KeptText {
  /** As it was kept; `undefined`: nobody has asked for it yet. */
  private known: string | undefined;

  constructor(private readonly key: string) {}

  /** What whoever is here left: it is asked for when it is known who that is. */
  get text(): string {
    if (this.known !== undefined) return this.known;
    try {
      this.known = isMine(sessionStorage) ? (sessionStorage.getItem(this.key) ?? "") : "";
    } catch {
      // This browser keeps nothing.
      this.known = "";
    }
    return this.known;
  }

  set(text: string): void {
    this.known = text;
    try {
      if (text === "" || text.length > TEXT_MAX || hasSecret(text)) sessionStorage.removeItem(this.key);
      else sessionStorage.setItem(this.key, text);
    } catch {
      // It is kept while the page is open.
    }
  }
}
