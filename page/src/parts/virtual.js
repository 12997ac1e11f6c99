// A list of any length, of which only the rows in sight exist.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";

const ROW_PX = 26;
const SPARE_ROWS = 12;

/** `draw(index)` returns the content of a row; `isFollowing` keeps the end in sight while rows are added. */
export function Virtual({ rows, draw, className, heightPx = 480, label, isFollowing = false, rowProps }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const height = Math.min(heightPx, Math.max(1, rows) * ROW_PX + 2);
  const first = Math.max(0, Math.floor(top / ROW_PX) - SPARE_ROWS);
  const last = Math.min(rows, Math.ceil((top + height) / ROW_PX) + SPARE_ROWS);

  useEffect(() => {
    if (isFollowing && box.current) box.current.scrollTop = rows * ROW_PX;
  }, [rows, isFollowing]);

  const shown = [];
  for (let index = first; index < last; index += 1) {
    shown.push(
      html`<div key=${index} role="listitem" ...${rowProps?.(index) ?? {}} class=${`row ${className} ${rowProps?.(index)?.class ?? ""}`} style=${{ top: `${index * ROW_PX}px` }}>
        ${draw(index)}
      </div>`,
    );
  }
  return html`<div
    class="virtual"
    role="list"
    aria-label=${label}
    tabindex="0"
    ref=${box}
    style=${{ height: `${height}px` }}
    onScroll=${(event) => setTop(event.currentTarget.scrollTop)}
  >
    <div class="space" style=${{ height: `${rows * ROW_PX}px` }}>${shown}</div>
  </div>`;
}
