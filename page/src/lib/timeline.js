// A job's timeline as the scheduler tells it: the first answer whole, later ones only what changed.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, lostSince, query } from "./api.js";
import { useSignal } from "./store.js";

const PAUSE_MS = 1000;

function barKey(bar) {
  return `${bar.stage}.${bar.stage_attempt ?? 0}.${bar.partition ?? 0}.${bar.attempt ?? 0}`;
}

/** Merge an answer into what earlier answers brought. */
function merged(old, answer) {
  const bars = new Map(old?.bars ?? []);
  if (answer.bucket_ms) bars.clear();
  for (const bar of answer.bars ?? []) bars.set(barKey(bar), bar);
  const marks = new Map(old?.marks ?? []);
  for (const mark of answer.marks ?? []) marks.set(mark.number, mark);
  return {
    ...answer,
    bars,
    marks,
    lanes: answer.lanes ?? [],
    stages: answer.stages ?? [],
    buckets: answer.buckets ?? [],
    bucketMs: answer.bucket_ms ?? 0,
    readAt: Date.now(),
  };
}

/**
 * The timeline of a job; it is read again when `change` is another value than before, once a second at most, and until it
 * goes to `position`, where the timeline of many attempts comes somewhat late. For another job the component that uses it is
 * made anew.
 */
export function useTimeline(jobId, change, position, isWanted = true) {
  const [state, setState] = useState({ timeline: null, error: null });
  const known = useRef(null);
  const wish = useRef({ isDue: false, isGoing: false });
  const isShown = useRef(false);
  const latest = useRef(0);
  latest.current = position;
  const lost = useSignal(lostSince); // when somebody answers again, it is read again

  useEffect(() => {
    if (!isWanted) return undefined;
    isShown.current = true;
    const read = async () => {
      if (wish.current.isGoing) {
        wish.current.isDue = true;
        return;
      }
      wish.current = { isDue: false, isGoing: true };
      try {
        const after = known.current?.position ?? 0;
        const answer = await get(`/jobs/${encodeURIComponent(jobId)}/timeline${query({ after: after || "", soon: "true" })}`);
        known.current = merged(known.current, answer);
        if (answer.is_early || (!answer.is_over && answer.position < latest.current)) wish.current.isDue = true;
        setState({ timeline: known.current, error: null });
      } catch (error) {
        if (error.isPassing) wish.current.isDue = true;
        setState((old) => ({ ...old, error }));
      } finally {
        setTimeout(() => {
          wish.current.isGoing = false;
          if (wish.current.isDue && isShown.current) read();
        }, PAUSE_MS);
      }
    };
    read();
    return () => {
      isShown.current = false;
    };
  }, [jobId, change, isWanted, lost]);
  return state;
}

/** How many attempts ran at each moment: [seconds since the start, attempts]. */
export function concurrency(timeline, untilMs) {
  const start = timeline.submitted_ms;
  if (timeline.bucketMs) {
    const sums = new Map();
    for (const bucket of timeline.buckets) sums.set(bucket.from_ms, (sums.get(bucket.from_ms) ?? 0) + (bucket.running ?? 0));
    const times = [...sums.keys()].sort((a, b) => a - b);
    return [times.map((at) => (at - start) / 1000), times.map((at) => sums.get(at))];
  }
  const steps = [];
  for (const bar of timeline.bars.values()) steps.push([bar.from_ms, 1], [bar.to_ms ?? untilMs, -1]);
  steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const xs = [0];
  const ys = [0];
  let running = 0;
  for (const [at, by] of steps) {
    running += by;
    const x = Math.max(0, (at - start) / 1000);
    if (x === xs[xs.length - 1]) ys[ys.length - 1] = running;
    else {
      xs.push(x);
      ys.push(running);
    }
  }
  return [xs, ys];
}
