// Dark or light: as the system has it, until somebody says otherwise.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "millrace.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function remembered(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

/** Colours that are told apart; after them they begin anew. */
const SERIES = 12;

/** The colour of the first thing of several, of the second..: the name of a class, and of a property of the style. */
export function series(at: number): string {
  return `series-${(at % SERIES) + 1}`;
}

/** What was chosen. */
export const theme = signal<Theme>(remembered());
/** Whether it is dark now. Charts, which do not know style sheets, are drawn again when it changes. */
export const isDark = signal(false);

function apply(): void {
  isDark.value = theme.value === "dark" || (theme.value === "system" && dark.matches);
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
}

dark.addEventListener("change", apply);
effect(() => {
  apply();
  try {
    if (theme.value === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme.value);
  } catch {
    // Nothing is remembered then.
  }
});

/** The other one. */
export function toggleTheme(): void {
  theme.value = isDark.value ? "light" : "dark";
}

/** A colour of the style sheet. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
