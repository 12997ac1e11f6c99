// One place for keys: who shows a view adds its own while the view is there.
import { useLayoutEffect, useRef } from "preact/hooks";

const tables = [];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.target.matches?.("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  for (const table of [...tables].reverse()) {
    const act = table.current[event.key];
    if (act) {
      event.preventDefault();
      act();
      return;
    }
  }
});

/**
 * Let keys act while the calling component is shown, from the moment at which it is there: {key: function}. The component
 * that came last is asked first.
 */
export function useKeys(acts) {
  const table = useRef({});
  table.current = acts;
  useLayoutEffect(() => {
    tables.push(table);
    return () => tables.splice(tables.indexOf(table), 1);
  }, []);
}
