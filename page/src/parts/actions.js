// What can be done to a job or an executor, if the caller may.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { post } from "../lib/api.js";
import { has } from "../lib/features.js";
import { go } from "../lib/router.js";
import { may } from "../lib/session.js";
import { ACTIVE } from "../lib/states.js";
import { Confirm, say } from "./basics.js";

const ENDED_BADLY = new Set(["failed", "cancelled"]);

export function CancelJob({ job, after, isPlain = false }) {
  const [isAsking, setAsking] = useState(false);
  if (!ACTIVE.has(job.state) || !may("cancel")) return null;
  const cancel = async (reason) => {
    const answer = await post(`/jobs/${encodeURIComponent(job.job_id)}/cancel`, { reason });
    say(answer.cancelled ? `${job.job_id} is cancelled.` : `${job.job_id} had ended before: it is ${answer.state}.`);
    after?.();
  };
  return html`<button class=${isPlain ? "plain danger" : "danger"} onClick=${() => setAsking(true)} aria-label=${`Cancel ${job.job_id}`}>Cancel</button>
    ${isAsking &&
    html`<${Confirm}
      title=${`Cancel ${job.name || job.job_id}?`}
      text="Its tasks are stopped, and what they wrote is removed. This cannot be taken back; the job can be submitted again."
      field="Reason (kept with the job)"
      verb="Cancel the job"
      act=${cancel}
      onClose=${() => setAsking(false)}
    />`}`;
}

export function RetryJob({ job, isPlain = false }) {
  const [isGoing, setGoing] = useState(false);
  if (!ENDED_BADLY.has(job.state) || !has("/jobs/{job_id}/retry", "post") || !may("retry")) return null;
  const retry = async () => {
    setGoing(true);
    try {
      const answer = await post(`/jobs/${encodeURIComponent(job.job_id)}/retry`);
      say(`Submitted again as ${answer.job_id}.`);
      go(`/jobs/${encodeURIComponent(answer.job_id)}`);
    } catch (error) {
      say(`It was not submitted again: ${error.message}`, "bad");
    } finally {
      setGoing(false);
    }
  };
  return html`<button class=${isPlain ? "plain" : ""} disabled=${isGoing} onClick=${retry} aria-label=${`Retry ${job.job_id}`}>Retry</button>`;
}
