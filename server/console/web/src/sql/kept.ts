// The text of an editor, kept while another page is shown, and in this tab over a reload.
import { hasSecret } from "./past";

/** Longer texts are kept while the page is open only. */
const TEXT_MAX = 1_000_000;

/** See the file. A text with a secret in it is kept while the page is open only. */
export class KeptText {
  text: string;

  constructor(private readonly key: string) {
    this.text = "";
    try {
      this.text = sessionStorage.getItem(key) ?? "";
    } catch {
      // This browser keeps nothing.
    }
  }

  set(text: string): void {
    this.text = text;
    try {
      if (text === "" || text.length > TEXT_MAX || hasSecret(text)) sessionStorage.removeItem(this.key);
      else sessionStorage.setItem(this.key, text);
    } catch {
      // It is kept while the page is open.
    }
  }
}
