// What happened to a job, in the order of its log.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { clock, count, words } from "../lib/format.js";
import { Empty, Problem } from "../parts/basics.js";
import { Virtual } from "../parts/virtual.js";

const LEFT_OUT = new Set(["position", "at_ms", "type", "scheduler_id"]);
const SHOWN_CHARS = 240;

/** What an event says, in a line. */
function gist(event) {
  const parts = [];
  const add = (text) => text && parts.push(text);
  if (event.stage_id !== undefined) add(`stage ${event.stage_id}${event.partition !== undefined ? ` task ${event.partition}` : ""}`);
  if (event.stage_ids) add(`stages ${event.stage_ids.join(", ")}`);
  if (event.task_attempt) add(`attempt ${event.task_attempt}`);
  if (event.tasks?.length) add(`${count(event.tasks.length)} tasks: ${partitions(event.tasks)}`);
  if (event.executor_id) add(`on ${event.executor_id}`);
  if (event.failure) add(`${words(event.failure.kind)}: ${event.failure.message}`);
  if (typeof event.reason === "string") add(words(event.reason));
  if (event.principal) add(`by ${event.principal}`);
  if (event.stages) add(`${count(event.stages.length)} stages`);
  const text = parts.join(" · ");
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

function partitions(tasks) {
  const numbers = tasks.map((task) => (Array.isArray(task) ? task[0] : task));
  return numbers.length > 6 ? `${numbers.slice(0, 5).join(", ")}, … ${numbers[numbers.length - 1]}` : numbers.join(", ");
}

export function Events({ job, log }) {
  const [open, setOpen] = useState(null);
  const [only, setOnly] = useState("");
  const [isFollowing, setFollowing] = useState(false);
  const types = [...new Set(log.events.map((event) => event.type))].sort();
  const shown = only ? log.events.filter((event) => event.type === only) : log.events;
  if (!log.events.length) {
    return html`<section class="card"><${Problem} error=${log.error} what="The log" />
      <${Empty} title=${log.state === "ended" ? "What happened is not kept any more" : "Nothing has happened yet"}><p>Every launch, success, failure and take-over appears here.</p><//>
    </section>`;
  }
  return html`<section class="card" aria-label="Events">
      <header>
        <h2>Events</h2>
        <span class="muted">positions ${count(log.first + 1)} to ${count(log.position)}</span>
        <label class="small">Type
          <select value=${only} onChange=${(event) => setOnly(event.currentTarget.value)}>
            <option value="">all</option>
            ${types.map((type) => html`<option key=${type} value=${type}>${words(type)}</option>`)}
          </select>
        </label>
        <label class="small"><input type="checkbox" checked=${isFollowing} onChange=${(event) => setFollowing(event.currentTarget.checked)} />Keep the end in sight</label>
        ${log.first > 0 && html`<button onClick=${log.earlier}>Earlier ones</button>`}
      </header>
      <${Problem} error=${log.error} what="Earlier events" />
      <div class="virtual-head events-grid" aria-hidden="true"><span>Position</span><span>Time</span><span>Scheduler</span><span>Event</span><span>What</span></div>
      <${Virtual}
        rows=${shown.length}
        className="events-grid"
        label="Events"
        heightPx=${520}
        isFollowing=${isFollowing}
        rowProps=${(index) => ({ class: open === shown[index] ? "open" : "", "data-position": shown[index].position })}
        draw=${(index) => html`<span class="muted">${shown[index].position}</span>
          <span class="mono">${clock(shown[index].at_ms)}</span>
          <span class="muted">${shown[index].scheduler_id}</span>
          <span><button class="plain" aria-expanded=${open === shown[index]} onClick=${() => setOpen(open === shown[index] ? null : shown[index])}>${words(shown[index].type)}</button></span>
          <span>${gist(shown[index])}</span>`}
      />
    </section>
    ${open && html`<section class="card" aria-label="Event"><header><h2>${words(open.type)}</h2><span class="muted">position ${open.position}</span></header>
      <pre class="text" tabindex="0">${JSON.stringify(without(open), null, 2)}</pre></section>`}`;
}

function without(event) {
  return Object.fromEntries(Object.entries(event).filter(([name]) => !LEFT_OUT.has(name)));
}
