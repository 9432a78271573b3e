// The editor: CodeMirror with SQL, the catalog's names, and errors at their place.
import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { keywordCompletionSource } from "@codemirror/lang-sql";
import { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { askNames } from "./catalog";
import { completeNames } from "./complete";
import { dialect } from "./dialect";
import type { Mark } from "./place";

const highlight = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--ink-soft)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-type)" },
]);

const look = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--ink)", fontSize: "13.5px", height: "100%" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "none" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--ink-soft)", border: "none" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  // Underlined without a picture: the page loads none that are written into styles.
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
  ".cm-placeholder": { color: "var(--ink-soft)" },
});

/** What a page does with an editor. */
export interface EditorHandle {
  text(): string;
  /** What is selected, else everything, and where it begins. */
  chosen(): { text: string; from: number };
  set(text: string): void;
  /** Underlines places; none: nothing is underlined. */
  mark(faults: Mark[]): void;
  focus(): void;
}

export interface EditorProps {
  start: string;
  label: string;
  hint: string;
  onRun(): void;
  onChange?(text: string): void;
  handle(handle: EditorHandle): void;
}

/** What is typed over a selection is written here: a browser would write the style of what was there beside it, which the page's policy forbids. */
function replaceSelected(event: InputEvent, view: EditorView): boolean {
  const { from, to, empty } = view.state.selection.main;
  const text = event.data;
  if (event.inputType !== "insertText" || !text || empty || view.composing || view.state.selection.ranges.length > 1) return false;
  const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handler) => handler(view, from, to, text, insert))) view.dispatch(insert());
  return true;
}

const KEYS = "editor-keys";

/** The keys of the editor, while one is in it. */
export function EditorKeys() {
  return (
    <span class="editor-keys" id={KEYS}>
      <kbd>Ctrl-Enter</kbd> runs, <kbd>Ctrl-Space</kbd> completes, <kbd>Escape</kbd> leaves the editor, then <kbd>Tab</kbd> goes on
    </span>
  );
}

const keywords = keywordCompletionSource(dialect, true);

export function Editor(props: EditorProps) {
  const box = useRef<HTMLDivElement>(null);
  const current = useRef(props);
  current.current = props;
  useEffect(() => {
    if (!box.current) return;
    askNames().catch(() => {});
    const nonce = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]')?.content ?? "";
    const run = (view: EditorView) => {
      // What is run is written: nothing of it is to be completed, and the list would lie over the answer.
      closeCompletion(view);
      current.current.onRun();
      return true;
    };
    const made = new EditorView({
      parent: box.current,
      state: EditorState.create({
        doc: props.start,
        extensions: [
          EditorView.cspNonce.of(nonce),
          keymap.of([
            { key: "Mod-Enter", run },
            // Escape leaves the editor, so that Tab is no trap.
            { key: "Escape", run: (view) => (view.contentDOM.blur(), true) },
            ...closeBracketsKeymap,
            ...completionKeymap,
            ...historyKeymap,
            ...defaultKeymap,
            indentWithTab,
          ]),
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          bracketMatching(),
          closeBrackets(),
          autocompletion({ icons: false, override: [completeNames, keywords] }),
          dialect.language,
          syntaxHighlighting(highlight),
          look,
          placeholder(props.hint),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": props.label, "aria-describedby": KEYS }),
          EditorView.domEventHandlers({ beforeinput: replaceSelected }),
          // Whoever leaves the editor is done with the word: a list that was about to come does not come then.
          EditorView.domEventHandlers({ blur: (_, view) => void closeCompletion(view) }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) current.current.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    props.handle({
      text: () => made.state.doc.toString(),
      chosen: () => {
        const { from, to } = made.state.selection.main;
        return from === to ? { text: made.state.doc.toString(), from: 0 } : { text: made.state.sliceDoc(from, to), from };
      },
      set: (text) => made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: text } }),
      mark: (faults) => {
        const size = made.state.doc.length;
        const diagnostics = faults.map((fault) => ({
          from: Math.min(fault.from, size),
          to: Math.min(fault.to, size),
          message: fault.message,
          severity: "error" as const,
        }));
        made.dispatch(setDiagnostics(made.state, diagnostics));
      },
      focus: () => made.focus(),
    });
    return () => made.destroy();
  }, []);
  return <div class="editor" ref={box} />;
}
