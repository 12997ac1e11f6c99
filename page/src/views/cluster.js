// The cluster at a glance.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { count, many, words } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { Loaded, Progress, tone, useTitle } from "../parts/basics.js";
import { Plot } from "../parts/plot.js";

const AGAIN_MS = 2000;
const MAX_POINTS = 900;

export function Cluster() {
  useTitle("Cluster");
  const cluster = useResource("/cluster", { everyMs: AGAIN_MS });
  const load = useLoad(cluster.data);
  return html`<div class="head"><h1>Cluster</h1></div>
    <${Loaded} of=${cluster} what="The cluster">
      ${(data) => html`<${Warnings} warnings=${data.warnings ?? []} />
        <div class="grid">
          <section class="card" aria-label="Slots">
            <header><h2>Slots</h2><span class="muted">${count(data.running)} of ${count(data.slots)} busy</span></header>
            <div class="inside">
              <${Progress} done=${0} going=${data.running} total=${data.slots} label=${`${data.running} of ${data.slots} slots busy`} />
              ${load[0].length > 1 &&
              html`<${Plot} data=${load} isStepped=${true} label="Tasks that ran while this page was open" showX=${(x) => `${Math.round(x)} s`} showY=${(y) => (Number.isInteger(y) ? count(y) : "")} />
                <p class="small muted">Running tasks, since this page was opened.</p>`}
            </div>
          </section>
          <${Counts} title="Jobs" of=${data.jobs} link=${(state) => `/jobs?state=${state}`} empty="None is known." />
          <${Counts} title="Executors" of=${data.executors} link=${() => "/executors"} empty="None is registered." />
          <section class="card" aria-label="Store">
            <header><h2>Store</h2></header>
            <dl class="facts inside">
              <dt>State</dt><dd class="mono">${data.store}</dd>
              <dt>Exchange</dt><dd class="mono">${data.exchange_dir}</dd>
              <dt>Schedulers</dt><dd><a href="/schedulers">${many(data.schedulers, "scheduler")}</a></dd>
              <dt>Version</dt><dd>${data.version}</dd>
            </dl>
          </section>
        </div>`}
    <//>`;
}

/** Running tasks over the time that the page is open, in seconds. */
function useLoad(data) {
  const start = useRef(Date.now());
  const [points, setPoints] = useState([[], []]);
  useEffect(() => {
    if (!data) return;
    const at = (Date.now() - start.current) / 1000;
    setPoints(([xs, ys]) => [[...xs, at].slice(-MAX_POINTS), [...ys, data.running].slice(-MAX_POINTS)]);
  }, [data]);
  return points;
}

function Warnings({ warnings }) {
  if (!warnings.length) return html`<div class="note">Nothing needs your attention.</div>`;
  return html`<ul class="warnings" aria-label="Warnings">
    ${warnings.map(
      (warning) => html`<li key=${warning.kind + warning.target} class=${`note ${warning.kind === "executor_lost" ? "warn" : "bad"}`}>
        <strong>${words(warning.kind)}</strong><span class="grow">${warning.target}${warning.target && warning.message ? ": " : ""}${warning.message}</span>
      </li>`,
    )}
  </ul>`;
}

function Counts({ title, of, link, empty }) {
  const states = Object.entries(of ?? {}).filter(([, n]) => n);
  return html`<section class="card" aria-label=${title}>
    <header><h2>${title}</h2></header>
    <dl class="facts inside">
      ${states.map(([state, n]) => html`<dt><a href=${link(state)} class=${`state ${tone(state)}`}>${words(state)}</a></dt><dd>${count(n)}</dd>`)}
      ${!states.length && html`<dd class="muted">${empty}</dd>`}
    </dl>
  </section>`;
}
