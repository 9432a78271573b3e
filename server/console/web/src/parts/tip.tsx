// What a number means: shown beside whatever has `data-tip` when one points at it, or comes to it with the keyboard.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

interface Shown {
  text: string;
  x: number;
  y: number;
  below: boolean;
}

/** The text for a place, and what it belongs to: itself, what it lies in, or a cell of a column that has one. `data-key-tip` is for the keyboard, which cannot come to what lies in it. */
function tipAt(target: Element, isKey: boolean): { at: Element; text: string } | undefined {
  const whole = isKey ? target.getAttribute("data-key-tip") : null;
  if (whole) return { at: target, text: whole };
  const own = target.closest("[data-tip]");
  const cell = target.closest("td");
  const isInside = cell !== null && (own === null || !cell.contains(own));
  const head = isInside ? cell.closest("table")?.querySelectorAll("th")[cell.cellIndex]?.getAttribute("data-tip") : null;
  if (cell && head) return { at: cell, text: head };
  const text = own?.getAttribute("data-tip");
  return own && text ? { at: own, text } : undefined;
}

/** The one tooltip of the page. */
export function TipLayer() {
  const [shown, setShown] = useState<Shown | undefined>();
  const box = useRef<HTMLDivElement>(null);
  const isShown = useRef(false);
  isShown.current = shown !== undefined;
  useEffect(() => {
    const show = (event: Event) => {
      const found = event.target instanceof Element ? tipAt(event.target, event.type === "focusin" && event.target.matches(":focus-visible")) : undefined;
      if (!found) return setShown(undefined);
      const { at, text } = found;
      const place = at.getBoundingClientRect();
      const below = place.top < 90;
      setShown({ text, x: place.left + Math.min(place.width / 2, 120), y: below ? place.bottom + 8 : place.top - 8, below });
    };
    const hide = () => setShown(undefined);
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !isShown.current) return;
      // The tooltip goes first, and what lies below it with the next Escape.
      event.stopPropagation();
      hide();
    };
    // A finger cannot point without a click.
    let isTouch = false;
    const touched = (event: PointerEvent) => (isTouch = event.pointerType === "touch");
    const clicked = (event: Event) => (isTouch ? show(event) : hide());
    document.addEventListener("pointerdown", touched);
    document.addEventListener("pointerover", show);
    document.addEventListener("focusin", show);
    document.addEventListener("keydown", pressed);
    document.addEventListener("scroll", hide, true);
    document.addEventListener("click", clicked);
    addEventListener("hashchange", hide);
    return () => {
      document.removeEventListener("pointerover", show);
      document.removeEventListener("focusin", show);
      document.removeEventListener("pointerdown", touched);
      document.removeEventListener("keydown", pressed);
      document.removeEventListener("scroll", hide, true);
      document.removeEventListener("click", clicked);
      removeEventListener("hashchange", hide);
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element || !shown) return;
    // Kept inside the window.
    const half = element.offsetWidth / 2;
    const x = Math.max(half + 8, Math.min(innerWidth - half - 8, shown.x));
    element.style.left = `${x}px`;
    element.style.top = `${shown.y}px`;
  }, [shown]);
  if (!shown) return null;
  return (
    <div class={`tip ${shown.below ? "below" : ""}`} role="tooltip" ref={box}>
      {shown.text}
    </div>
  );
}

/** A number with what it is, and what that means. */
export function Metric(props: { label: string; tip: string; tone?: string; children: ComponentChildren }) {
  return (
    <div class={`metric ${props.tone ?? ""}`} data-tip={props.tip} tabIndex={0}>
      <dt>{props.label}</dt>
      <dd>{props.children}</dd>
    </div>
  );
}
