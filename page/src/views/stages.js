// The stages of a job, what their tasks took, and how unevenly.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get, lostSince, query } from "../lib/api.js";
import { count, duration, size, words } from "../lib/format.js";
import { setQuery, usePlace } from "../lib/router.js";
import { useSignal } from "../lib/store.js";
import { Empty, Problem, Progress, State } from "../parts/basics.js";
import { Plot } from "../parts/plot.js";
import { Virtual } from "../parts/virtual.js";

const TASKS_A_PAGE = 10_000;
const MAX_TASKS = 200_000;
const AGAIN_MS = 3000;
const SKEWED = 3;

export function Stages({ job, now, timeline }) {
  const { query: asked } = usePlace();
  const open = asked.get("stage");
  if (!job.stages.length) {
    return html`<section class="card"><${Empty} title="There are no stages yet"><p>They are known when the job is planned.</p><//></section>`;
  }
  const chosen = job.stages.find((stage) => String(stage.stage_id) === open);
  return html`<section class="card" aria-label="Stages">
      <div class="table">
        <table>
          <thead>
            <tr>
              <th scope="col">Stage</th>
              <th scope="col">State</th>
              <th scope="col">Tasks</th>
              <th scope="col" class="num">Took</th>
              <th scope="col" class="num">Run, all tasks</th>
              <th scope="col" class="num" title="How long half of the tasks ran, and the longest one">Median, longest</th>
              <th scope="col" class="num">In</th>
              <th scope="col" class="num">Out</th>
              <th scope="col" class="num">Rows out</th>
              <th scope="col" class="num">Spilled</th>
              <th scope="col" class="num">Peak memory</th>
              <th scope="col" class="num">Failed</th>
            </tr>
          </thead>
          <tbody>
            ${job.stages.map((stage) => html`<${Row} key=${stage.stage_id} stage=${stage} now=${now} isOpen=${stage === chosen} />`)}
          </tbody>
        </table>
      </div>
    </section>
    ${chosen && html`<${Tasks} key=${chosen.stage_id} job=${job} stage=${chosen} times=${timesOf(timeline, chosen.stage_id)} />`}`;
}

function Row({ stage, now, isOpen }) {
  const metrics = stage.metrics ?? {};
  const took = stage.started_ms ? (stage.ended_ms || now) - stage.started_ms : null;
  const run = stage.latencies?.find((each) => each.part === "run");
  const isSkewed = run !== undefined && run.p50_ms > 0 && run.max_ms >= SKEWED * run.p50_ms;
  const bad = stage.tasks_failed + stage.tasks_lost;
  return html`<tr class=${isOpen ? "chosen" : ""}>
    <td>
      <button class="plain" aria-expanded=${isOpen} onClick=${() => setQuery({ stage: isOpen ? "" : String(stage.stage_id) })}>
        ${isOpen ? "▾" : "▸"} ${stage.stage_id} ${stage.name}
      </button>
      ${stage.child_job_id && html` <a class="small" href=${`/jobs/${encodeURIComponent(stage.child_job_id)}`} aria-label=${`The job of step ${stage.stage_id}`}>its job${stage.step_state && stage.step_state !== stage.state ? `, ${words(stage.step_state)}` : ""}</a>`}
    </td>
    <td><${State} of=${stage.state} />${stage.attempt > 0 && html` <span class="small muted">attempt ${stage.attempt}</span>`}</td>
    <td class="progress-cell">
      <span class="small muted">${count(stage.successful)} / ${count(stage.partitions)}</span>
      <${Progress}
        done=${stage.successful}
        going=${stage.running}
        total=${stage.partitions}
        isBad=${stage.state === "failed"}
        label=${`Stage ${stage.stage_id}: ${stage.successful} of ${stage.partitions} tasks done, ${stage.running} running`}
      />
    </td>
    <td class="num">${took === null ? "" : duration(took)}</td>
    <td class="num">${metrics.run_ms ? duration(metrics.run_ms) : ""}</td>
    <td class="num">${run && run.tasks > 1 ? html`${duration(run.p50_ms)}, <span class=${isSkewed ? "state warn" : ""}>${duration(run.max_ms)}</span>` : ""}</td>
    <td class="num">${metrics.bytes_in ? size(metrics.bytes_in) : ""}</td>
    <td class="num">${metrics.bytes_out ? size(metrics.bytes_out) : ""}</td>
    <td class="num">${metrics.rows_out ? count(metrics.rows_out) : ""}</td>
    <td class="num">${metrics.spill_bytes ? size(metrics.spill_bytes) : ""}</td>
    <td class="num">${metrics.peak_memory_bytes ? size(metrics.peak_memory_bytes) : ""}</td>
    <td class="num" title=${`${stage.tasks_failed} failed, ${stage.tasks_lost} lost with executors or launches, ${stage.tasks_speculated} tried a second time beside the first`}>
      ${bad ? count(bad) : ""}
    </td>
  </tr>`;
}

/** All tasks of a stage, page by page; again while it runs, or after a failure that passes. */
function useTasks(jobId, stage) {
  const [state, setState] = useState({ tasks: [], isWhole: false, error: null });
  const isGoing = stage.state === "running";
  const lost = useSignal(lostSince); // when somebody answers again, they are read again
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const read = async () => {
      const tasks = [];
      let isDue = isGoing;
      try {
        let cursor = "";
        do {
          const page = await get(`/jobs/${encodeURIComponent(jobId)}/stages/${stage.stage_id}/tasks${query({ cursor, limit: TASKS_A_PAGE })}`, stop.signal);
          tasks.push(...page.items);
          cursor = page.next ?? "";
        } while (cursor && tasks.length < MAX_TASKS);
        setState({ tasks, isWhole: !cursor, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        isDue ||= error.isPassing;
        setState((old) => ({ ...old, error }));
      }
      // A stage of many tasks is read less often: it takes a page for every 10,000.
      if (isDue) timer = setTimeout(read, AGAIN_MS * (1 + tasks.length / TASKS_A_PAGE));
    };
    read();
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [jobId, stage.stage_id, stage.attempt, isGoing, lost]);
  return state;
}

const SHOWN = ["", "running", "pending", "failed", "successful"];

function Tasks({ job, stage, times }) {
  const { tasks, isWhole, error } = useTasks(job.job_id, stage);
  const [only, setOnly] = useState("");
  const states = SHOWN.filter((state) => !state || tasks.some((task) => task.state === state));
  const wanted = only ? tasks.filter((task) => task.state === only) : tasks;
  return html`<section class="card" aria-label=${`Tasks of stage ${stage.stage_id}`}>
    <header>
      <h2>Tasks of stage ${stage.stage_id}</h2>
      <span class="muted">${count(tasks.length)}${isWhole || !tasks.length ? "" : " of the first"}</span>
      <div class="segments" role="group" aria-label="State of tasks">
        ${states.map((state) => html`<button key=${state} aria-pressed=${state === only} onClick=${() => setOnly(state)}>${state || "all"}</button>`)}
      </div>
    </header>
    <${Problem} error=${error} what="The list of tasks" />
    ${times.length > 1 && html`<${Skew} times=${times} />`}
    <div class="virtual-head tasks-grid" aria-hidden="true">
      <span>Task</span><span>State</span><span>Executor</span><span class="num">Attempts</span><span class="num">Failures</span><span>Remarks</span>
    </div>
    <${Virtual}
      rows=${wanted.length}
      className="tasks-grid"
      label=${`Tasks of stage ${stage.stage_id}`}
      draw=${(index) => taskRow(wanted[index])}
    />
  </section>`;
}

function taskRow(task) {
  const remarks = [];
  if (task.successes > 1) remarks.push(`ran again ${task.successes - 1}×: its output was lost`);
  if (task.speculative_executor_id) remarks.push(`a second attempt runs on ${task.speculative_executor_id}`);
  else if (task.speculative_won) remarks.push("a second attempt was faster");
  else if (task.speculated) remarks.push("had a second attempt");
  return html`<span>${task.partition}</span>
    <span><${State} of=${task.state} /></span>
    <span class="muted">${task.executor_id}</span>
    <span class="num">${task.attempts}</span>
    <span class="num">${task.failures || ""}</span>
    <span class="muted">${remarks.join("; ")}</span>`;
}

/** The run times of attempts that succeeded, in order: a flat line is an even stage, a hook at its end is skew. */
function Skew({ times }) {
  const middle = times[Math.floor(times.length / 2)];
  const most = times[times.length - 1];
  const data = useMemo(() => [times.map((_, index) => index + 1), times], [times.length, middle, most]);
  const isSkewed = middle > 0 && most >= SKEWED * middle;
  return html`<figure class="inside">
    <figcaption class="small muted">
      Run times of ${count(times.length)} tasks, shortest first: median ${duration(middle)}, longest ${duration(most)}${isSkewed ? html`. <strong>Skewed: ${(most / middle).toFixed(1)} times the median</strong>` : ""}
    </figcaption>
    <${Plot} data=${data} label="Run times of tasks, shortest first" showX=${(value) => (Number.isInteger(value) ? count(value) : "")} showY=${duration} />
  </figure>`;
}

function timesOf(timeline, stageId) {
  const times = [];
  for (const bar of timeline?.bars.values() ?? []) {
    if ((bar.stage ?? 0) === stageId && bar.outcome === "successful" && bar.run_ms) times.push(bar.run_ms);
  }
  return times.sort((a, b) => a - b);
}
