// A job as the page shows it: what was submitted and planned, with the latest progress.
import { useEffect, useRef, useState } from "preact/hooks";
import { useProgress } from "./live.js";
import { useResource } from "./resource.js";
import { ACTIVE } from "./states.js";

const AGAIN_MS = 5000;
const SHARES_AGAIN_MS = 2000;
const SHARES_LONGEST_MS = 60_000;

/**
 * A job. Its progress comes as a stream; the rest is read now and then, and whenever the job has another state or other
 * stages. For another job the component that uses it is made anew.
 */
export function useJob(jobId) {
  const [progress, setProgress] = useState(null);
  const isGoing = progress !== null && ACTIVE.has(progress.state);
  const resource = useResource(`/jobs/${encodeURIComponent(jobId)}`, { everyMs: isGoing ? AGAIN_MS : 0 });
  const detail = resource.data;
  const isActive = detail !== null && ACTIVE.has((progress ?? detail).state);
  const stream = useProgress(jobId, isActive, setProgress);
  const job = detail === null ? null : progress === null ? detail : together(detail, progress);

  const shape = progress === null ? "" : `${progress.stages.length} ${progress.state}`;
  useEffect(() => {
    if (progress !== null && detail !== null && (progress.stages.length !== detail.stages.length || progress.state !== detail.state)) {
      resource.again();
    }
  }, [shape]);
  // Where the time of a large job went takes a while to read: it is asked for less and less often.
  const tries = useRef(0);
  useEffect(() => {
    if (detail === null || ACTIVE.has(detail.state) || isWhole(detail)) return undefined;
    const timer = setTimeout(() => {
      tries.current += 1;
      resource.again();
    }, Math.min(SHARES_LONGEST_MS, SHARES_AGAIN_MS * 1.2 ** tries.current));
    return () => clearTimeout(timer);
  }, [detail]);
  return { job, isActive, stream, error: resource.error, isLoading: resource.isLoading, again: resource.again };
}

/** Whether it is known where all of the job's time went. */
function isWhole(detail) {
  const sumMs = (detail.time_shares ?? []).reduce((sum, share) => sum + share.ms, 0);
  return sumMs >= (detail.ended_ms ?? 0) - (detail.submitted_ms ?? 0);
}

function together(detail, progress) {
  // What has ended stays so, whichever of the two was read later.
  if (!ACTIVE.has(detail.state)) return detail;
  const known = new Map(detail.stages.map((stage) => [stage.stage_id, stage]));
  const stages = progress.stages.map((stage) => {
    const before = known.get(stage.stage_id);
    return { ...stage, plan: before?.plan ?? "", latencies: stage.latencies?.length ? stage.latencies : (before?.latencies ?? []) };
  });
  return { ...detail, ...progress, stages, time_shares: detail.time_shares };
}
