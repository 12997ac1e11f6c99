// Who changed what, other than by submitting jobs.
import { html } from "../lib/html.js";
import { query } from "../lib/api.js";
import { moment, words } from "../lib/format.js";
import { useResource } from "../lib/resource.js";
import { setQuery, usePlace, withQuery } from "../lib/router.js";
import { Empty, Loaded, useTitle } from "../parts/basics.js";

const A_PAGE = 100;
const DAY_MS = 86_400_000;
const SPANS = [
  ["1", "the last day"],
  ["7", "the last week"],
  ["all", "all that is kept"],
];

export function Audit() {
  useTitle("Audit");
  const { query: asked } = usePlace();
  const [action, target, principal, cursor] = ["action", "target", "principal", "cursor"].map((name) => asked.get(name) ?? "");
  const days = asked.get("days") ?? SPANS[0][0];
  const since = days !== "all" ? Math.floor(Date.now() / DAY_MS - Number(days)) * DAY_MS : "";
  const audit = useResource(`/audit${query({ since, action, target, principal, cursor, limit: A_PAGE })}`);
  const field = (name, label, value) =>
    html`<input aria-label=${label} placeholder=${label} value=${value} onChange=${(event) => setQuery({ [name]: event.currentTarget.value.trim(), cursor: "" })} />`;
  return html`<div class="head"><h1>Audit</h1></div>
    <div class="bar">
      <div class="segments" role="group" aria-label="Time">
        ${SPANS.map(([value, name]) => html`<button key=${value} aria-pressed=${value === days} onClick=${() => setQuery({ days: value, cursor: "" })}>${name}</button>`)}
      </div>
      ${field("action", "Action", action)} ${field("target", "Job, executor or path", target)} ${field("principal", "Who", principal)}
    </div>
    <section class="card" aria-label="Audit">
      <${Loaded} of=${audit} what="The audit">
        ${({ items }) =>
          items.length
            ? html`<div class="table"><table>
                <thead><tr>
                  <th scope="col">Time</th><th scope="col">Who</th><th scope="col">From</th><th scope="col">Action</th><th scope="col">Of</th>
                  <th scope="col">Why</th><th scope="col">Outcome</th><th scope="col">Scheduler</th>
                </tr></thead>
                <tbody>
                  ${items.map(
                    (entry, at) => html`<tr key=${at}>
                      <td class="nowrap">${moment(entry.at_ms)}</td>
                      <td>${entry.principal || html`<span class="muted">nobody named</span>`}</td>
                      <td class="mono">${entry.address}</td>
                      <td>${words(entry.action)}</td>
                      <td class="mono">${entry.target}</td>
                      <td>${entry.detail}</td>
                      <td>${entry.outcome}</td>
                      <td class="muted">${entry.scheduler_id}</td>
                    </tr>`,
                  )}
                </tbody>
              </table></div>`
            : html`<${Empty} title="Nobody changed anything">
                <p>${cursor || action || target || principal || days !== "all" ? "Nothing that is kept is like that." : "Cancelled jobs, drained executors and changed records appear here."}</p>
              <//>`}
      <//>
    </section>
    ${(cursor || audit.data?.next) &&
    html`<nav class="bar" aria-label="Pages">
      ${cursor && html`<a class="button" href=${withQuery({ cursor: "" })}>Oldest</a>`}
      ${audit.data?.next && html`<a class="button" href=${withQuery({ cursor: audit.data.next })}>Later</a>`}
    </nav>`}`;
}
