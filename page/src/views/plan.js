// The plan: as it ran, with what its operators measured, or as Spark planned it.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { query } from "../lib/api.js";
import { count, duration, size, words } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Empty, Loaded } from "../parts/basics.js";

const AGAIN_MS = 3000;

/** A metric's value in words, by Spark's type of it. */
function shown(metric) {
  const { type, value } = metric;
  if (type === "size") return size(value);
  if (type === "timing") return duration(value);
  if (type === "nsTiming") return duration(value / 1e6);
  if (type === "average") return (value / 10).toFixed(1);
  return count(value);
}

function title(name) {
  return words(name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()).replace(/^number of |^num /, "");
}

export function Plan({ job, hasFinal, isGoing }) {
  return html`${hasFinal && html`<${Final} job=${job} isGoing=${isGoing} />`}
    ${job.plan
      ? html`<section class="card" aria-label="Spark's plan">
          <header><h2>As Spark planned it</h2></header>
          <pre class="text wide" tabindex="0">${job.plan}</pre>
        </section>`
      : html`<section class="card"><${Empty} title="There is no plan yet"><p>It appears when the job is planned.</p><//></section>`}
    ${job.stages.some((stage) => stage.plan) &&
    html`<section class="card" aria-label="Stages' plans">
      <header><h2>Cut into stages</h2></header>
      <div class="inside">
        ${job.stages.filter((stage) => stage.plan).map(
          (stage) => html`<details key=${stage.stage_id} open=${job.stages.length < 8}>
            <summary>Stage ${stage.stage_id} ${stage.name}</summary>
            <pre class="text wide" tabindex="0">${stage.plan}</pre>
          </details>`,
        )}
      </div>
    </section>`}`;
}

function Final({ job, isGoing }) {
  const [cursor, setCursor] = useState("");
  const plan = useResource(`/jobs/${encodeURIComponent(job.job_id)}/plan${query({ cursor })}`, { everyMs: isGoing ? AGAIN_MS : 0 });
  return html`<section class="card" aria-label="The plan as it ran">
    <header>
      <h2>As it ran</h2>
      ${cursor && html`<button onClick=${() => setCursor("")}>First stages</button>`}
      ${plan.data?.next && html`<button onClick=${() => setCursor(plan.data.next)}>Further stages</button>`}
    </header>
    <${Loaded} of=${plan} what="The plan as it ran">
      ${(data) => {
        const stages = data.items.filter((stage) => stage.info.work !== "plan" || stage.plans.length);
        return html`<div class="operators">
          ${stages.map((stage) => html`<${FinalStage} key=${stage.info.stage_id} stage=${stage} />`)}
          ${!stages.length && html`<p class="muted">Nothing has run yet.</p>`}
        </div>`;
      }}
    <//>
  </section>`;
}

function FinalStage({ stage }) {
  const { info } = stage;
  return html`<details open>
    <summary>
      <strong>Stage ${info.stage_id} ${info.name}</strong>${" "}
      <span class="muted">${words(info.state)}, ${count(info.successful)} of ${count(info.partitions)} tasks${stage.has_estimate ? `, Spark expected ${count(stage.estimated_rows)} rows` : ""}</span>
    </summary>
    ${stage.plans.map(
      (plan) => html`<div key=${plan.bound_plan}>
        ${stage.plans.length > 1 && html`<p class="small muted">${count(plan.tasks)} tasks ran it so:</p>`}
        ${plan.operators.length ? html`<ul><${Operator} all=${plan.operators} at=${0} /></ul>` : html`<p class="muted">Its operators are not kept any more.</p>`}
      </div>`,
    )}
    ${!stage.plans.length && html`<p class="muted">Not reported.</p>`}
  </details>`;
}

function Operator({ all, at }) {
  const operator = all[at];
  if (!operator) return null;
  const metrics = operator.metrics.filter((metric) => metric.value);
  return html`<li>
    <strong>${operator.name}</strong>
    ${" "}<span class="metrics">${metrics.map((metric) => `${title(metric.name)} ${shown(metric)}`).join(" · ")}</span>
    ${operator.text !== operator.name && html`<div class="text">${operator.text}</div>`}
    ${operator.children.length > 0 && html`<ul>${operator.children.map((child) => html`<${Operator} key=${child} all=${all} at=${child} />`)}</ul>`}
  </li>`;
}
