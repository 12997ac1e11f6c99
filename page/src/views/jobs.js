// The list of jobs.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { query } from "../lib/api.js";
import { ago, count, duration, moment } from "../lib/format.js";
import { useKeys } from "../lib/keys.js";
import { useNow, useResource } from "../lib/resource.js";
import { setQuery, usePlace, withQuery } from "../lib/router.js";
import { ACTIVE } from "../lib/states.js";
import { CancelJob, RetryJob } from "../parts/actions.js";
import { Empty, Loaded, State, useTitle } from "../parts/basics.js";

const STATES = ["", "queued", "running", "successful", "failed", "cancelled"];
const A_PAGE = 100;
const AGAIN_MS = 2000;
const TYPING_MS = 250;

export function Jobs() {
  useTitle("Jobs");
  const { query: asked } = usePlace();
  const [state, q, session, steps, cursor] = ["state", "q", "session", "steps", "cursor"].map((name) => asked.get(name) ?? "");
  // Only the newest ones are read again and again.
  const jobs = useResource(`/jobs${query({ state, q, session, steps, cursor, limit: A_PAGE })}`, { everyMs: cursor ? 0 : AGAIN_MS });
  const now = useNow();
  const search = useRef(null);
  const body = useRef(null);
  const isFiltered = Boolean(state || q || session);

  const step = (by) => {
    const links = [...(body.current?.querySelectorAll("a.job") ?? [])];
    const next = Math.min(links.length - 1, Math.max(0, links.indexOf(document.activeElement) + by));
    links[next]?.focus();
  };
  useKeys({ "/": () => search.current?.focus(), j: () => step(1), k: () => step(-1) });

  return html`
    <div class="head"><h1>Jobs</h1></div>
    <div class="bar">
      <${Search} key=${session} value=${q} input=${search} />
      <div class="segments" role="group" aria-label="State">
        ${STATES.map(
          (each) => html`<button key=${each} aria-pressed=${each === state} onClick=${() => setQuery({ state: each, cursor: "" })}>
            ${each || "all"}
          </button>`,
        )}
      </div>
      <label class="small" title="The jobs of scripts' steps, and of programs' calls">
        <input type="checkbox" checked=${steps === "true"} onChange=${(event) => setQuery({ steps: event.currentTarget.checked ? "true" : "", cursor: "" })} />Steps and calls
      </label>
      ${session && html`<button onClick=${() => setQuery({ session: "", cursor: "" })}>session ${session} ✕</button>`}
    </div>
    <section class="card" aria-label="Jobs">
      <${Loaded} of=${jobs} what="The list of jobs">
        ${(page) =>
          page.items.length
            ? html`<div class="table">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Job</th>
                      <th scope="col">State</th>
                      <th scope="col">By</th>
                      <th scope="col" class="num">Rows</th>
                      <th scope="col" class="num">Submitted</th>
                      <th scope="col" class="num">Duration</th>
                      <th scope="col"><span class="hidden">Actions</span></th>
                    </tr>
                  </thead>
                  <tbody ref=${body}>
                    ${page.items.map((job) => html`<${Row} key=${job.job_id} job=${job} now=${now} again=${jobs.again} />`)}
                  </tbody>
                </table>
              </div>`
            : html`<${Nothing} isFiltered=${isFiltered} isLater=${Boolean(cursor)} />`}
      <//>
    </section>
    <${Pages} cursor=${cursor} next=${jobs.data?.next} />
  `;
}

function Search({ value, input }) {
  const [text, setText] = useState(value);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => setQuery({ q: text, cursor: "" }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<input
    type="search"
    ref=${input}
    aria-label="Search jobs by name"
    placeholder="Search names   /"
    value=${text}
    onInput=${(event) => setText(event.currentTarget.value)}
  />`;
}

function Row({ job, now, again }) {
  const to = `/jobs/${encodeURIComponent(job.job_id)}`;
  const isGoing = ACTIVE.has(job.state);
  const took = (job.ended_ms || (isGoing ? now : 0)) - job.submitted_ms;
  return html`<tr>
    <td class="name">
      <a class="job cut" href=${to} title=${job.name || job.job_id}>${job.name || job.job_id}</a>
      ${job.failure?.message
        ? html`<span class="cut small muted" title=${job.failure.message}>${job.failure.message}</span>`
        : html`<span class="cut small muted mono">${job.job_id}</span>`}
    </td>
    <td><${State} of=${job.state} /></td>
    <td class="muted">${job.principal}</td>
    <td class="num">${job.result_rows ? count(job.result_rows) : ""}</td>
    <td class="num muted" title=${moment(job.submitted_ms)}>${ago(job.submitted_ms, now)}</td>
    <td class="num">${took >= 0 ? duration(took) : ""}</td>
    <td>
      <div class="actions">
        <${CancelJob} job=${job} after=${again} isPlain />
        <${RetryJob} job=${job} isPlain />
      </div>
    </td>
  </tr>`;
}

function Nothing({ isFiltered, isLater }) {
  if (isFiltered) {
    return html`<${Empty} title="No job is like that">
      <p>Jobs that ended long ago are not kept; <a href="/jobs">all that are known</a> may hold what you look for.</p>
    <//>`;
  }
  if (isLater) return html`<${Empty} title="There are no older jobs"><a href="/jobs">Back to the newest</a><//>`;
  return html`<${Empty} title="No jobs yet">
    <p>Submit one, and it appears here:</p>
    <code>onager submit -e "SELECT count(*) FROM range(1000000)"</code>
  <//>`;
}

function Pages({ cursor, next }) {
  if (!cursor && !next) return null;
  return html`<nav class="bar" aria-label="Pages">
    ${cursor && html`<a class="button" href=${withQuery({ cursor: "" })}>Newest</a>`}
    ${next && html`<a class="button" href=${withQuery({ cursor: next })}>Older</a>`}
  </nav>`;
}
