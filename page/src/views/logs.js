// What attempts of a job's tasks logged.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { query } from "../lib/api.js";
import { useResource } from "../lib/resource.js";
import { usePlace, setQuery } from "../lib/router.js";
import { Empty, Loaded } from "../parts/basics.js";

const AGAIN_MS = 3000;
const TAILS = [
  [16 * 1024, "16 KiB"],
  [64 * 1024, "64 KiB"],
  [256 * 1024, "256 KiB"],
];

export function Logs({ job, isGoing }) {
  const { query: asked } = usePlace();
  const [stage, part, attempt] = ["stage", "part", "attempt"].map((name) => asked.get(name) ?? "");
  const [tail, setTail] = useState(TAILS[0][0]);
  const logs = useResource(`/jobs/${encodeURIComponent(job.job_id)}/logs${query({ stage, part, attempt, tail })}`, { everyMs: isGoing ? AGAIN_MS : 0 });
  const number = (name, label, value) => html`<label class="small">${label}
    <input type="number" min="0" value=${value} placeholder="any" onChange=${(event) => setQuery({ [name]: event.currentTarget.value })} />
  </label>`;
  return html`<div class="bar">
      <label class="small">Stage
        <select value=${stage} onChange=${(event) => setQuery({ stage: event.currentTarget.value })}>
          <option value="">all</option>
          ${job.stages.map((each) => html`<option key=${each.stage_id} value=${String(each.stage_id)}>${each.stage_id} ${each.name}</option>`)}
        </select>
      </label>
      ${number("part", "Task", part)} ${number("attempt", "Attempt, from 0", attempt)}
      <label class="small">Of each the last
        <select value=${tail} onChange=${(event) => setTail(Number(event.currentTarget.value))}>
          ${TAILS.map(([bytes, name]) => html`<option key=${bytes} value=${bytes}>${name}</option>`)}
        </select>
      </label>
    </div>
    <${Loaded} of=${logs} what="The logs">
      ${(data) => {
        const { items } = data;
        if (!items.length) {
          return html`<section class="card"><${Empty} title="No logs">
            <p>Executors hold what attempts logged for as long as they live; of failures, the end is kept with the job.</p>
          <//></section>`;
        }
        return items.map((log, at) => html`<${Log} key=${at} log=${log} />`);
      }}
    <//>`;
}

function Log({ log }) {
  const task = log.task;
  const title = task ? `Stage ${task.stage_id}, task ${task.partition}, attempt ${task.task_attempt ?? 0}` : "Remark";
  return html`<section class="card" aria-label=${title}>
    <header>
      <h2>${title}</h2>
      <span class="muted">${log.executor_id}${log.kept ? ", kept with its failure" : ""}</span>
    </header>
    ${log.note && html`<p class="inside muted">${log.note}</p>`}
    ${log.text && html`<pre class="text" tabindex="0">${log.text}</pre>`}
  </section>`;
}
