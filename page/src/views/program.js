// A program: its attempts, its calls in order, and what it prints.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { clock, count, moment } from "../lib/format.js";
import { useCalls, useOutput } from "../lib/program.js";
import { useResource } from "../lib/resource.js";
import { Empty, Loaded, Problem } from "../parts/basics.js";
import { Virtual } from "../parts/virtual.js";

const AGAIN_MS = 2000;
const NEAR_THE_END_PX = 40;

export function Program({ job, isGoing }) {
  const info = useResource(`/programs/${encodeURIComponent(job.job_id)}`, { everyMs: isGoing ? AGAIN_MS : 0 });
  const { calls, error } = useCalls(job.job_id, isGoing);
  return html`<${Loaded} of=${info} what="The program">
      ${(program) => html`<${Standing} program=${program} last=${calls?.at(-1)} />`}
    <//>
    <${Output} key=${job.job_id} programId=${job.job_id} />
    <section class="card" aria-label="Calls">
      <header><h2>Calls</h2><span class="muted">${count(calls?.length)}</span></header>
      <${Problem} error=${error} what="The calls" />
      ${calls?.length ? html`<${Calls} calls=${calls} attempt=${info.data?.attempt ?? 0} isGoing=${isGoing} />` : calls && html`<${Empty} title="It has made no calls of Spark yet" />`}
    </section>`;
}

function Standing({ program, last }) {
  return html`<dl class="strip" aria-label="The program">
    <div><dt>Attempts</dt><dd>${program.attempt ? count(program.attempt) : "none yet"}</dd></div>
    ${program.attempt > 1 && !program.ended && html`<div><dt>This one since</dt><dd title=${moment(program.attempt_ms)}>${clock(program.attempt_ms)}</dd></div>`}
    ${last && html`<div><dt>Last call</dt><dd class="mono">${last.line || last.kind}</dd></div>`}
    ${program.ended && html`<div><dt>Exit code</dt><dd>${program.exit_code}</dd></div>`}
    ${program.why_ended && html`<div class="grow"><dt>Ended because</dt><dd>${program.why_ended}</dd></div>`}
  </dl>`;
}

function Calls({ calls, attempt, isGoing }) {
  const hasTasks = new Set(calls.map((call) => call.task)).size > 1;
  const draw = (index) => {
    const call = calls[index];
    return html`<span class="mono muted">${clock(call.at_ms)}</span>
      <span class="mono" title=${hasTasks ? `task ${call.task}` : ""}>${call.line}${hasTasks ? html` <span class="muted">${call.task}</span>` : ""}</span>
      <span title=${`${call.kind} ${call.target}`}>${call.kind} ${call.target && html`<span class="mono">${call.target}</span>`}</span>
      <span class="muted">${call.attempt < attempt ? `attempt ${call.attempt}, earlier` : `attempt ${call.attempt}`}</span>
      <span class=${call.error ? "bad" : ""} title=${call.error}>${call.error || (call.done ? "done" : "begun")}</span>
      <span>${call.job_id && html`<a href=${`/jobs/${encodeURIComponent(call.job_id)}`} aria-label=${`The job of the call at ${call.line}`}>job</a>`}</span>`;
  };
  return html`<div class="virtual-head calls-grid" aria-hidden="true"><span>Time</span><span>${hasTasks ? "Line, task" : "Line"}</span><span>Call</span><span>Made by</span><span>Outcome</span><span>Job</span></div>
    <${Virtual} rows=${calls.length} className="calls-grid" label="Calls" heightPx=${420} isFollowing=${isGoing} draw=${draw} />`;
}

function Output({ programId }) {
  const { parts, leftOut, state } = useOutput(programId);
  const box = useRef(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  const note = (event) => {
    const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
  };
  return html`<section class="card" aria-label="Output">
    <header>
      <h2>Output</h2>
      ${state !== "ended" && html`<span class=${`live ${state === "live" ? "on" : "lost"}`} role="status">${state}</span>`}
      ${leftOut && html`<span class="muted">the beginning is left out</span>`}
    </header>
    ${parts.length
      ? html`<pre class="text printed" tabindex="0" ref=${box} onScroll=${note}>${parts.map((part, at) => html`<${Part} key=${at} part=${part} before=${parts[at - 1]} />`)}</pre>`
      : html`<${Empty} title=${state === "ended" ? "It has printed nothing" : "It has printed nothing yet"} />`}
  </section>`;
}

function Part({ part, before }) {
  const isNext = before && before.attempt !== part.attempt;
  return html`${isNext && html`<span class="muted next">attempt ${part.attempt}</span>`}<span class=${part.isError ? "bad" : ""}>${part.text}</span>`;
}
