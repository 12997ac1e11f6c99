// uPlot in the page's colours.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "../lib/html.js";
import { useSignal } from "../lib/store.js";
import { theme } from "../lib/theme.js";

/** A colour among the design tokens. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** One filled line: `data` is [x values, y values]; `showX` and `showY` make texts of them. */
export function Plot({ data, label, showX, showY, isStepped = false, heightPx = 120 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shown = useRef(data);
  shown.current = data;
  const look = useSignal(theme);

  useEffect(() => {
    const line = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--muted"), font: "11px system-ui, sans-serif", grid: line, ticks: line };
    plot.current = new uPlot(
      {
        width: box.current.clientWidth || 600,
        height: heightPx,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } },
        axes: [
          { ...axis, size: 28, values: (_, values) => values.map((value) => showX(value)) },
          { ...axis, size: 62, values: (_, values) => values.map((value) => showY(value)) },
        ],
        series: [
          {},
          {
            stroke: colour("--accent"),
            fill: colour("--accent-soft"),
            width: 1.5,
            points: { show: false },
            paths: isStepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          },
        ],
      },
      shown.current,
      box.current,
    );
    const resized = new ResizeObserver(() => {
      if (box.current?.clientWidth) plot.current?.setSize({ width: box.current.clientWidth, height: heightPx });
    });
    resized.observe(box.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [look, heightPx, isStepped]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);

  return html`<div class="plot" ref=${box} role="img" aria-label=${label}></div>`;
}
