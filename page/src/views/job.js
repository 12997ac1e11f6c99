// One job.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { features, has } from "../lib/features.js";
import { ago, count, duration, many, moment, percent, size, words } from "../lib/format.js";
import { useJobEvents } from "../lib/events.js";
import { useJob } from "../lib/job.js";
import { useKeys } from "../lib/keys.js";
import { useNow } from "../lib/resource.js";
import { go, usePlace } from "../lib/router.js";
import { useSignal } from "../lib/store.js";
import { useTimeline } from "../lib/timeline.js";
import { CancelJob, RetryJob } from "../parts/actions.js";
import { Copied, Empty, Problem, Progress, State, useTitle } from "../parts/basics.js";
import { Definition } from "./definition.js";
import { Events } from "./events.js";
import { Graph } from "./graph.js";
import { Logs } from "./logs.js";
import { Plan } from "./plan.js";
import { Program } from "./program.js";
import { Seconds } from "./seconds.js";
import { Stages } from "./stages.js";
import { Timeline } from "./timeline.js";

const TABS = [
  { id: "", name: "Overview" },
  { id: "timeline", name: "Timeline", needs: "/jobs/{job_id}/timeline" },
  { id: "stages", name: "Stages" },
  { id: "plan", name: "Plan" },
  { id: "definition", name: "Definition" },
  { id: "events", name: "Events" },
  { id: "logs", name: "Logs", needs: "/jobs/{job_id}/logs" },
];

export function Job({ jobId, tab }) {
  useSignal(features);
  const known = useJob(jobId);
  const { job } = known;
  const now = useNow(known.isActive ? 1000 : 0);
  const log = useJobEvents(jobId, job ? job.log_seq : null);
  const hasTimeline = has("/jobs/{job_id}/timeline");
  const timed = useTimeline(jobId, `${log.version} ${job?.state}`, log.position, hasTimeline && ["timeline", "stages"].includes(tab));
  useTitle(job?.name || jobId);

  const tabs = TABS.filter((each) => !each.needs || has(each.needs));
  const base = `/jobs/${encodeURIComponent(jobId)}`;
  const step = (by) => {
    const at = tabs.findIndex((each) => each.id === tab);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    go(next.id ? `${base}/${next.id}` : base);
  };
  useKeys({ "]": () => step(1), "[": () => step(-1), u: () => go("/jobs") });

  if (known.error?.status === 404) return html`<${Missing} jobId=${jobId} />`;
  if (job === null) {
    return html`<h1>${jobId}</h1><${Problem} error=${known.error} what="The job" again=${known.again} />
      ${!known.error && html`<p class="muted" role="status">Reading…</p>`}`;
  }
  if (!TABS.some((each) => each.id === tab)) return html`<${Missing} jobId=${`${jobId}/${tab}`} />`;
  return html`
    <${Head} job=${job} known=${known} log=${log} now=${now} />
    <${Notes} job=${job} />
    <nav class="tabs" aria-label="Views of the job">
      ${tabs.map((each) => html`<a key=${each.id} href=${each.id ? `${base}/${each.id}` : base} aria-current=${each.id === tab ? "page" : undefined}>${each.name}</a>`)}
    </nav>
    ${tab === "" && (isProgram(job) ? html`<${Program} job=${job} isGoing=${known.isActive} />` : html`<${Overview} job=${job} now=${now} />`)}
    ${tab === "timeline" && html`<${Timeline} job=${job} timeline=${timed.timeline} error=${timed.error} isGoing=${known.isActive} />`}
    ${tab === "stages" && html`<${Stages} job=${job} now=${now} timeline=${timed.timeline} />`}
    ${tab === "plan" && html`<${Plan} job=${job} hasFinal=${has("/jobs/{job_id}/plan")} isGoing=${known.isActive} />`}
    ${tab === "definition" && html`<${Definition} job=${job} />`}
    ${tab === "events" && html`<${Events} job=${job} log=${log} />`}
    ${tab === "logs" && html`<${Logs} job=${job} isGoing=${known.isActive} />`}
  `;
}

/** Whether the job is a program, of which the scheduler that serves the page can tell more. */
function isProgram(job) {
  return has("/programs/{program_id}") && job.stages.some((stage) => stage.work === "program");
}

/** The id of the program of which the job is a call; empty if it is none. */
function programOf(job) {
  return (job.labels?.["connect.program"] ?? "").split("/")[1] ?? "";
}

function Missing({ jobId }) {
  return html`<section class="card"><${Empty} title="There is nothing here">
    <p>No job <code>${jobId}</code> is known. Records of ended jobs are kept for a day, unless settings say otherwise.</p>
    <a href="/jobs">All jobs</a>
  <//></section>`;
}

function Head({ job, known, log, now }) {
  const done = job.stages.reduce((sum, stage) => sum + stage.successful, 0);
  const running = job.stages.reduce((sum, stage) => sum + stage.running, 0);
  const total = job.stages.reduce((sum, stage) => sum + stage.partitions, 0);
  const took = (job.ended_ms || now) - job.submitted_ms;
  const writers = new Set(log.events.map((event) => event.scheduler_id).filter(Boolean));
  return html`<div class="head">
      <h1>${job.name || job.job_id}</h1>
      <${State} of=${job.state} />
      ${known.isActive && html`<${Live} of=${known.stream} />`}
      <div class="actions">
        <${CancelJob} job=${job} after=${known.again} />
        <${RetryJob} job=${job} />
      </div>
    </div>
    <p class="muted"><span class="mono">${job.job_id}</span> <${Copied} text=${job.job_id} label="Copy the job's id" /></p>
    <${Progress}
      done=${done}
      going=${running}
      total=${total}
      isBad=${job.state === "failed"}
      label=${`${count(done)} of ${many(total, "task")} done, ${count(running)} running`}
    />
    <dl class="strip">
      <div><dt>Tasks</dt><dd>${count(done)} / ${count(total)}${running ? html` <span class="muted">${count(running)} running</span>` : ""}</dd></div>
      <div><dt>${known.isActive ? "So far" : "Took"}</dt><dd>${duration(took)}</dd></div>
      <div><dt>Submitted</dt><dd title=${moment(job.submitted_ms)}>${ago(job.submitted_ms, now)}</dd></div>
      ${job.principal && html`<div><dt>By</dt><dd>${job.principal}</dd></div>`}
      ${known.isActive && job.fraction > 0 && html`<div><dt>Done</dt><dd title=${job.fraction_fell}>${percent(job.fraction)}</dd></div>`}
      ${eta(job) && html`<div><dt>Ends in about</dt><dd>${eta(job)}</dd></div>`}
      ${job.result_rows > 0 && html`<div><dt>Rows</dt><dd>${count(job.result_rows)}</dd></div>`}
      ${job.exchange_bytes > 0 && html`<div><dt>Exchange</dt><dd>${size(job.exchange_bytes)}</dd></div>`}
      ${writers.size > 1 && html`<div><dt>Schedulers</dt><dd>${[...writers].join(", ")}</dd></div>`}
      ${job.sink_path && html`<div class="grow"><dt>Writes</dt><dd class="mono cut" title=${job.sink_path}>${job.sink_path}</dd></div>`}
      ${job.parent && html`<div><dt>Step of</dt><dd><a href=${`/jobs/${encodeURIComponent(job.parent)}`}>${job.parent}</a></dd></div>`}
      ${programOf(job) && html`<div><dt>Call of</dt><dd><a href=${`/jobs/${encodeURIComponent(programOf(job))}`}>${programOf(job)}</a></dd></div>`}
      ${job.retry_of && html`<div><dt>Retry of</dt><dd><a href=${`/jobs/${encodeURIComponent(job.retry_of)}`}>${job.retry_of}</a></dd></div>`}
    </dl>`;
}

/** The time that is left, where the scheduler tells it. */
function eta(job) {
  const { eta_low_ms: least, eta_high_ms: most } = job;
  if (!most) return "";
  return least && least !== most ? `${duration(least)} to ${duration(most)}` : duration(most);
}

function Live({ of }) {
  if (of === "reconnecting") return html`<span class="live lost" role="status">reconnecting</span>`;
  return html`<span class=${`live ${of === "live" ? "on" : ""}`} role="status">${of === "live" ? "live" : of}</span>`;
}

/** What a failure says besides the piece of the query, which is shown as code. */
function said({ message, query_context: context }) {
  return context ? message.replace(context.trim(), "").trim() : message;
}

function Notes({ job }) {
  const { failure, retry } = job;
  return html`
    ${failure?.message &&
    html`<div class=${`note ${job.state === "cancelled" ? "" : "bad"}`}>
      ${failure.error_class && html`<strong>${failure.error_class}</strong>`}
      <span class="grow">${said(failure)}</span>
      ${failure.query_context && html`<pre tabindex="0">${failure.query_context}</pre>`}
      ${failure.details && html`<details class="grow"><summary>Stack trace</summary><pre tabindex="0">${failure.details}</pre></details>`}
      ${failure.log_tail && html`<details class="grow"><summary>The end of its log</summary><pre tabindex="0">${failure.log_tail}</pre></details>`}
    </div>`}
    ${job.waiting_for && html`<div class="note warn">It waits: ${job.waiting_for}</div>`}
    ${retry?.message &&
    html`<div class="note warn">
      Stage ${retry.stage_id}, task ${retry.partition} is tried again${retry.max_tries ? ` (${retry.next_try} of ${retry.max_tries})` : ""}${retry.tasks > 1 ? `, and ${many(retry.tasks - 1, "other")}` : ""}: ${retry.message}
    </div>`}
    ${job.fraction_fell && html`<div class="note">There is more to do than there was: ${job.fraction_fell}</div>`}
    ${job.durable_because && html`<div class="note">It does not stream: ${job.durable_because}</div>`}
  `;
}

function Overview({ job, now }) {
  return html`<section class="card" aria-label="Stages">
      <header><h2>Stages</h2><span class="muted">${count(job.stages.length)}</span></header>
      ${job.stages.length ? html`<${Graph} job=${job} now=${now} />` : html`<${Empty} title="There are no stages yet" />`}
    </section>
    <${Seconds} job=${job} />`;
}
