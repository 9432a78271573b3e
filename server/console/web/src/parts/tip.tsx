// What a number means: shown beside whatever has `data-tip` when one points at it, or comes to it with the keyboard.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

interface Shown {
  text: string;
  x: number;
  y: number;
  below: boolean;
}

/** The one tooltip of the page. */
export function TipLayer() {
  const [shown, setShown] = useState<Shown | undefined>();
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const show = (event: Event) => {
      const at = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-tip]") : null;
      const text = at?.dataset.tip;
      if (!at || !text) return setShown(undefined);
      const place = at.getBoundingClientRect();
      const below = place.top < 90;
      setShown({ text, x: place.left + Math.min(place.width / 2, 120), y: below ? place.bottom + 8 : place.top - 8, below });
    };
    const hide = (event: Event) => {
      if (!(event instanceof KeyboardEvent) || event.key === "Escape") setShown(undefined);
    };
    document.addEventListener("pointerover", show);
    document.addEventListener("focusin", show);
    document.addEventListener("keydown", hide);
    document.addEventListener("scroll", hide, true);
    document.addEventListener("click", hide);
    addEventListener("hashchange", hide);
    return () => {
      document.removeEventListener("pointerover", show);
      document.removeEventListener("focusin", show);
      document.removeEventListener("keydown", hide);
      document.removeEventListener("scroll", hide, true);
      document.removeEventListener("click", hide);
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
    <div class={`metric ${props.tone ?? ""}`} data-tip={props.tip}>
      <dt>{props.label}</dt>
      <dd>{props.children}</dd>
    </div>
  );
}
