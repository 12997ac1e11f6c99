// Where every second of a job went.
import { html } from "../lib/html.js";
import { duration, percent, words } from "../lib/format.js";

/** Each use has a colour of its own, and an explanation. */
const USES = {
  waiting: ["c0", "for a free slot of an executor"],
  planning: ["c1", "making the plan"],
  function: ["c6", "in the job's Python function"],
  scheduling: ["c7", "between tasks: nothing was left to launch of the stages that had begun"],
  launching: ["c2", "on the way to executors, in their queues, and back into the log"],
  binding: ["c9", "making the plans of stages executable, with their broadcasts"],
  code_generation: ["c8", "of that, generating and compiling code"],
  running: ["c3", "reading sources, and computing"],
  fetching: ["c4", "waiting for rows of other stages"],
  writing: ["c5", "from a task's last row to its output under its final name"],
  wasted: ["c10", "on attempts that failed or were lost or beaten, and on outputs made again"],
  retry_pause: ["c11", "before failed tasks were tried again"],
  publishing: ["c12", "making the written files a dataset"],
  unknown: ["c7", "what happened then is not in the store any more"],
};

export function Seconds({ job }) {
  const shares = (job.time_shares ?? []).filter((share) => share.ms);
  const whole = shares.reduce((sum, share) => sum + share.ms, 0);
  if (!whole) return null;
  return html`<section class="card" aria-label="Where every second went">
    <header><h2>Where every second went</h2><span class="muted">${duration(whole)}</span></header>
    <div class="inside">
      <div class="shares" aria-hidden="true">
        ${shares.map(({ use, ms }) => html`<i key=${use} class=${colour(use)} title=${`${words(use)} ${duration(ms)}`} style=${{ width: `${(100 * ms) / whole}%` }}></i>`)}
      </div>
      <div class="shares-list">
        ${shares.map(
          ({ use, ms }) => html`<i key=${use} class=${colour(use)}></i><span>${words(use)}</span><span class="num">${duration(ms)}</span>
            <span class="num muted">${percent(ms / whole)}</span><span class="muted">${USES[use]?.[1]}</span>`,
        )}
      </div>
    </div>
  </section>`;
}

function colour(use) {
  return USES[use]?.[0] ?? "c7";
}
