// Executors × time: every attempt, every retry, and where another scheduler took over.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { clock, count, duration, words } from "../lib/format.js";
import { useKeys } from "../lib/keys.js";
import { useSignal } from "../lib/store.js";
import { theme } from "../lib/theme.js";
import { concurrency } from "../lib/timeline.js";
import { Empty, Problem } from "../parts/basics.js";
import { colour, Plot } from "../parts/plot.js";
import { draw, hit, layOut } from "./timeline_canvas.js";

const LONGEST_PX = 620;

export function Timeline({ job, timeline, error, isGoing }) {
  const untilMs = useUntil(timeline, isGoing);
  const running = useMemo(() => (timeline ? concurrency(timeline, untilMs) : null), [timeline, timeline?.bucketMs ? 0 : untilMs]);
  if (!timeline) {
    if (error && error.status !== 0) return html`<${Problem} error=${error} what="The timeline" />`;
    return html`<p class="muted" role="status">Reading…</p>`;
  }
  if (!timeline.attempts && !timeline.lanes.length) {
    return html`<section class="card"><${Empty} title="Nothing has run yet">
      <p>${job.waiting_for ? `It waits: ${job.waiting_for}.` : "The first attempt appears here as soon as it is launched."}</p>
    <//></section>`;
  }
  return html`${timeline.is_partial &&
    html`<div class="note warn">Some of what happened is not in the store any more, so attempts and marks are missing.</div>`}
    <section class="card" aria-label="Timeline">
      <header>
        <h2>Executors × time</h2>
        <span class="muted">${count(timeline.attempts ?? 0)} attempts${outcomes(timeline)}</span>
      </header>
      <${Canvas} timeline=${timeline} untilMs=${untilMs} />
    </section>
    <section class="card">
      <header><h2>Running at a time</h2></header>
      <${Plot}
        data=${running}
        isStepped=${true}
        label="Attempts that ran at a time"
        showX=${(seconds) => duration(seconds * 1000)}
        showY=${(value) => (Number.isInteger(value) ? count(value) : "")}
      />
    </section>
    <${Marks} timeline=${timeline} />`;
}

function outcomes(timeline) {
  const parts = Object.entries(timeline.outcomes ?? {}).filter(([outcome]) => outcome !== "successful");
  return parts.map(([outcome, n]) => `, ${count(n)} ${outcome}`).join("");
}

/** The moment up to which there is something to show: of a job that goes on, it moves with the clock. */
function useUntil(timeline, isGoing) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!isGoing) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [isGoing]);
  if (!timeline) return 0;
  const last = Math.max(timeline.to_ms, timeline.submitted_ms + 1);
  return isGoing && !timeline.is_over ? last + (Date.now() - timeline.readAt) : last;
}

function Canvas({ timeline, untilMs }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [range, setRange] = useState(null); // null: all of it
  const [drag, setDrag] = useState(null);
  const [pointed, setPointed] = useState(null);
  const look = useSignal(theme);
  const whole = [timeline.submitted_ms, untilMs];
  const shown = range ?? whole;
  const plan = useMemo(() => layOut(timeline, width), [timeline, width]);

  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(canvas.current?.clientWidth ?? 0));
    resized.observe(canvas.current);
    return () => resized.disconnect();
  }, []);

  useEffect(() => {
    if (!width) return;
    draw(canvas.current, timeline, plan, { from: shown[0], to: shown[1], untilMs, drag, colour });
  }, [timeline, plan, shown[0], shown[1], drag, look, width]);

  const zoom = (factor, middle = (shown[0] + shown[1]) / 2) => {
    const half = Math.max(1, ((shown[1] - shown[0]) * factor) / 2);
    const from = Math.max(whole[0], middle - half);
    const to = Math.min(whole[1], middle + half);
    setRange(from <= whole[0] && to >= whole[1] ? null : [from, to]);
  };
  const move = (share) => {
    if (!range) return;
    const by = Math.min(Math.max((range[1] - range[0]) * share, whole[0] - range[0]), whole[1] - range[1]);
    setRange([range[0] + by, range[1] + by]);
  };
  useKeys({ "+": () => zoom(0.5), "-": () => zoom(2), 0: () => setRange(null), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25) });

  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const down = (event) => {
    const { x } = at(event);
    canvas.current.setPointerCapture(event.pointerId);
    setPointed(null);
    setDrag([x, x]);
  };
  const moved = (event) => {
    const { x, y } = at(event);
    if (drag) setDrag([drag[0], x]);
    else {
      const what = hit(timeline, plan, { x, y, from: shown[0], to: shown[1], untilMs });
      setPointed(what && { what, x, y });
    }
  };
  const up = () => {
    if (!drag) return;
    const [a, b] = [Math.min(...drag), Math.max(...drag)];
    setDrag(null);
    if (b - a < 5) return;
    setRange([plan.timeAt(a, ...shown), plan.timeAt(b, ...shown)]);
  };

  return html`<div class="inside">
    <div class="bar">
      <div class="legend grow">
        <span><i class="good"></i>successful</span>
        <span><i class="going"></i>running</span>
        <span><i class="bad"></i>failed, lost</span>
        <span><i></i>stopped, killed</span>
        <span><i class="warn line"></i>another scheduler took over</span>
        <span><i class="bad line"></i>executor lost, rollback</span>
      </div>
      <button onClick=${() => zoom(0.5)} aria-label="Zoom in">+</button>
      <button onClick=${() => zoom(2)} disabled=${!range} aria-label="Zoom out">−</button>
      <button onClick=${() => setRange(null)} disabled=${!range}>All</button>
    </div>
    <div class="timeline scroll" tabindex="0" role="group" aria-label="Timeline" style=${{ maxHeight: `${LONGEST_PX}px`, overflowY: "auto" }}>
      <canvas
        ref=${canvas}
        style=${{ height: `${plan.height}px` }}
        role="img"
        aria-label=${`Attempts of ${timeline.lanes.length} executors over ${duration(untilMs - timeline.submitted_ms)}; the table below tells what happened`}
        onPointerDown=${down}
        onPointerMove=${moved}
        onPointerUp=${up}
        onPointerLeave=${() => setPointed(null)}
        onDblClick=${() => setRange(null)}
      ></canvas>
      ${pointed && html`<${Tip} pointed=${pointed} timeline=${timeline} width=${width} untilMs=${untilMs} />`}
    </div>
    <p class="small muted">Drag over a part to see it larger; double-click shows all. Keys: <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd> <kbd>←</kbd> <kbd>→</kbd></p>
  </div>`;
}

function Tip({ pointed, timeline, width, untilMs }) {
  const { what, x, y } = pointed;
  const isRight = x > width / 2;
  const style = { top: `${y + 14}px`, left: isRight ? "auto" : `${x + 12}px`, right: isRight ? `${width - x + 12}px` : "auto" };
  return html`<div class="tooltip" style=${style}>${description(what, timeline, untilMs)}</div>`;
}

function description(what, timeline, untilMs) {
  if (what.mark) return html`<strong>${markTitle(what.mark)}</strong><br />${clock(what.mark.at_ms)} ${what.mark.text}`;
  if (what.stage) {
    const { stage } = what;
    return html`<strong>Stage ${stage.stage} ${stage.name}</strong>${stage.attempt ? `, attempt ${stage.attempt}` : ""}<br />
      ${words(stage.outcome)}, ${duration((stage.to_ms ?? untilMs) - stage.from_ms)}, ${count(stage.partitions)} tasks`;
  }
  if (what.bucket) {
    const { bucket } = what;
    const ends = ["successful", "failed", "lost", "killed", "stopped"].filter((kind) => bucket[kind]);
    return html`<strong>${timeline.lanes[bucket.lane ?? 0]?.executor_id}</strong><br />
      ${clock(bucket.from_ms)}, ${duration(timeline.bucketMs)}: ${(bucket.running ?? 0).toFixed(1)} at a time<br />
      ${ends.map((kind) => `${count(bucket[kind])} ${kind}`).join(", ")}`;
  }
  const { bar } = what;
  const parts = [
    ["waited there", bar.queued_ms],
    ["ran", bar.run_ms],
    ["of that for rows", bar.fetch_ms],
    ["of that to finish its output", bar.commit_ms],
  ].filter(([, ms]) => ms);
  return html`<strong>Stage ${bar.stage ?? 0}, task ${bar.partition ?? 0}</strong>, attempt ${bar.attempt ?? 0}${bar.speculative ? " (second one)" : ""}<br />
    ${words(bar.outcome)} on ${timeline.lanes[bar.lane ?? 0]?.executor_id}, ${duration((bar.to_ms ?? untilMs) - bar.from_ms)}<br />
    ${clock(bar.from_ms)}${parts.map(([name, ms]) => html`<br />${name} ${duration(ms)}`)}
    ${bar.message && html`<br /><span class="muted">${bar.message}</span>`}`;
}

const TITLES = {
  take_over: "Another scheduler took over",
  executor_lost: "Executor lost",
  task_retry: "Tasks are tried again",
  stage_rollback: "A stage runs again",
  second_attempts: "Second attempts of slow tasks",
  launches_repeated: "Launches sent again",
  streaming_given_up: "Streaming given up",
  not_kept: "Not kept",
};

function markTitle(mark) {
  const title = TITLES[mark.kind] ?? words(mark.kind).replace(/^./, (letter) => letter.toUpperCase());
  return mark.count > 1 ? `${title} (${count(mark.count)} times)` : title;
}

function Marks({ timeline }) {
  const marks = [...timeline.marks.values()].sort((a, b) => a.at_ms - b.at_ms);
  return html`<section class="card" aria-label="What happened">
    <header><h2>What happened</h2></header>
    <div class="table">
      <table>
        <thead>
          <tr><th scope="col">Time</th><th scope="col" class="num">After</th><th scope="col">What</th><th scope="col">Where</th><th scope="col">More</th></tr>
        </thead>
        <tbody>
          ${marks.map(
            (mark) => html`<tr key=${mark.number}>
              <td class="mono">${clock(mark.at_ms)}</td>
              <td class="num muted">${duration(mark.at_ms - timeline.submitted_ms)}</td>
              <td class="nowrap">${markTitle(mark)}</td>
              <td class="muted">${[mark.scheduler_id, mark.executor_id, mark.stage === undefined || mark.stage === null ? "" : `stage ${mark.stage}`].filter(Boolean).join(", ")}</td>
              <td>${mark.text}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}
