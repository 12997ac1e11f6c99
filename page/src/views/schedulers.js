// The schedulers: any of them answers any call.
import { html } from "../lib/html.js";
import { duration, moment } from "../lib/format.js";
import { useNow, useResource } from "../lib/resource.js";
import { Loaded, useTitle } from "../parts/basics.js";

const AGAIN_MS = 2000;

export function Schedulers() {
  useTitle("Schedulers");
  const schedulers = useResource("/schedulers", { everyMs: AGAIN_MS });
  const now = useNow();
  return html`<div class="head"><h1>Schedulers</h1></div>
    <section class="card" aria-label="Schedulers">
      <${Loaded} of=${schedulers} what="The list of schedulers">
        ${({ items }) => html`<div class="table"><table>
          <thead><tr>
            <th scope="col">Scheduler</th><th scope="col">Address</th><th scope="col">Host</th><th scope="col" class="num">Process</th>
            <th scope="col">Version</th><th scope="col" class="num">Up for</th>
          </tr></thead>
          <tbody>
            ${items.map(
              (each) => html`<tr key=${each.incarnation}>
                <td>${each.scheduler_id}${each.answering ? html` <span class="state going">answers you</span>` : ""}</td>
                <td class="mono">${each.address}</td>
                <td>${each.host}</td>
                <td class="num">${each.pid}</td>
                <td>${each.version}</td>
                <td class="num" title=${moment(each.started_ms)}>${duration(now - each.started_ms)}</td>
              </tr>`,
            )}
          </tbody>
        </table></div>`}
      <//>
    </section>
    <p class="muted small">A scheduler that died leaves this list when its lease ends, within seconds. Its jobs go on at another.</p>`;
}
