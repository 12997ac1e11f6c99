// The executors, and how busy they are.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { post } from "../lib/api.js";
import { features, has } from "../lib/features.js";
import { ago, count, moment, size } from "../lib/format.js";
import { useNow, useResource } from "../lib/resource.js";
import { may } from "../lib/session.js";
import { useSignal } from "../lib/store.js";
import { Confirm, Empty, Loaded, Progress, say, State, useTitle } from "../parts/basics.js";

const AGAIN_MS = 2000;
const GONE = new Set(["lost", "left"]);

export function Executors() {
  useTitle("Executors");
  const executors = useResource("/executors", { everyMs: AGAIN_MS });
  const now = useNow();
  useSignal(features);
  return html`<div class="head"><h1>Executors</h1></div>
    <section class="card" aria-label="Executors">
      <${Loaded} of=${executors} what="The list of executors">
        ${({ items }) =>
          items.length
            ? html`<div class="table"><table>
                <thead><tr>
                  <th scope="col">Executor</th><th scope="col">State</th><th scope="col">Slots</th><th scope="col" class="num">Programs</th><th scope="col" class="num" title="of all its processes; 100 %: one core">CPU</th>
                  <th scope="col" class="num">Heap</th><th scope="col" class="num">Memory</th><th scope="col" class="num">Exchange</th>
                  <th scope="col" class="num">Free</th><th scope="col">Spark</th><th scope="col" class="num">Seen</th><th scope="col"><span class="hidden">Actions</span></th>
                </tr></thead>
                <tbody>${[...items].sort(byState).map((each) => html`<${Row} key=${each.executor_id + each.incarnation} executor=${each} now=${now} again=${executors.again} />`)}</tbody>
              </table></div>`
            : html`<${Empty} title="No executor is registered">
                <p>Jobs wait until there is one:</p>
                <code>onager executor --scheduler HOST:PORT --slots 4</code>
              <//>`}
      <//>
    </section>`;
}

function byState(a, b) {
  return Number(GONE.has(a.state)) - Number(GONE.has(b.state)) || a.executor_id.localeCompare(b.executor_id);
}

function Row({ executor, now, again }) {
  const load = executor.load ?? {};
  const isGone = GONE.has(executor.state);
  return html`<tr>
    <td class="name">
      <span class="cut">${executor.executor_id}</span>
      <span class="cut small muted" title=${executor.reason}>${executor.reason || `${executor.host} · pid ${executor.pid} · ${executor.mode || "pull"}`}</span>
    </td>
    <td><${State} of=${executor.state} /></td>
    <td class="progress-cell">
      ${!isGone &&
      html`<span class="small muted">${executor.running} of ${executor.slots} busy</span>
        <${Progress} done=${0} going=${executor.running} total=${executor.slots} label=${`${executor.executor_id}: ${executor.running} of ${executor.slots} slots busy`} />`}
    </td>
    <td class="num">${executor.program_slots ? html`${count(executor.programs)} <span class="muted">/ ${count(executor.program_slots)}</span>` : ""}</td>
    <td class="num">${load.rss_bytes ? `${count(load.cpu_percent)} %` : ""}</td>
    <td class="num">${load.heap_max_bytes ? html`${size(load.heap_used_bytes)} <span class="muted">/ ${size(load.heap_max_bytes)}</span>` : ""}</td>
    <td class="num">${load.rss_bytes ? size(load.rss_bytes) : ""}</td>
    <td class="num">${executor.exchange ? size(executor.exchange.bytes) : ""}</td>
    <td class="num">${executor.exchange ? size(executor.exchange.free_bytes) : ""}</td>
    <td class="muted">${executor.spark_version}</td>
    <td class="num muted" title=${moment(executor.last_seen_ms)}>${ago(executor.last_seen_ms, now)}</td>
    <td><div class="actions"><${Drain} executor=${executor} after=${again} /></div></td>
  </tr>`;
}

function Drain({ executor, after }) {
  const [isAsking, setAsking] = useState(false);
  if (executor.state !== "alive" || !has("/executors/{executor_id}/drain", "post") || !may("drain")) return null;
  const drain = async (reason) => {
    const answer = await post(`/executors/${encodeURIComponent(executor.executor_id)}/drain`, { reason });
    say(`${executor.executor_id} takes no more work, and leaves when ${count(answer.running ?? 0)} running tasks have ended.${answer.programs ? ` Programs that go on elsewhere: ${count(answer.programs)}.` : ""}`);
    after();
  };
  return html`<button class="plain" onClick=${() => setAsking(true)} aria-label=${`Drain ${executor.executor_id}`}>Drain</button>
    ${isAsking &&
    html`<${Confirm}
      title=${`Drain ${executor.executor_id}?`}
      text="It takes no more work, finishes what it runs, and leaves. This cannot be taken back."
      field="Reason (kept in the audit)"
      verb="Drain the executor"
      act=${drain}
      onClose=${() => setAsking(false)}
    />`}`;
}
