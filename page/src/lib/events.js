// The events of a job that the page holds: a window over its log, which grows at the end while the job goes on.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, query } from "./api.js";
import { useEvents } from "./live.js";

const WINDOW_POSITIONS = 500;
const MAX_EVENTS = 40_000;
const DRAW_MS = 200;

/**
 * The events of a job, and what their stream says. `first` is the position before which `earlier()` reads; null while
 * nothing was read. For another job the component that uses it is made anew.
 */
export function useJobEvents(jobId, logSeq) {
  const held = useRef({ events: [], first: null, position: 0, timer: 0 });
  const [version, setVersion] = useState(0);
  const [start, setStart] = useState(null);
  const [error, setError] = useState(null);

  const redraw = useCallback(() => {
    if (held.current.timer) return;
    held.current.timer = setTimeout(() => {
      held.current.timer = 0;
      setVersion((n) => n + 1);
    }, DRAW_MS);
  }, []);

  useEffect(() => {
    if (logSeq === null || held.current.first !== null) return;
    const first = Math.max(0, logSeq - WINDOW_POSITIONS);
    held.current.first = first;
    held.current.position = first;
    setStart(first);
  }, [logSeq]);

  const state = useEvents(jobId, start, (position, events) => {
    const mine = held.current;
    mine.events.push(...events.map((event) => ({ position, ...event })));
    mine.position = position;
    if (mine.events.length > 1.2 * MAX_EVENTS) {
      mine.events.splice(0, mine.events.length - MAX_EVENTS);
      mine.first = mine.events[0].position - 1;
    }
    redraw();
  });

  const earlier = async () => {
    const mine = held.current;
    const until = mine.first;
    const from = Math.max(0, until - WINDOW_POSITIONS);
    const found = [];
    try {
      let after = from;
      while (after < until) {
        const page = await get(`/jobs/${encodeURIComponent(jobId)}/events${query({ after: String(after), limit: 2000 })}`);
        found.push(...page.items.filter((event) => event.position <= until));
        if (page.next === null || page.next <= after) break;
        after = page.next;
      }
      if (mine.first !== until) return;
      mine.events.unshift(...found);
      mine.first = from;
      setError(null);
      setVersion((n) => n + 1);
    } catch (refused) {
      setError(refused);
    }
  };
  const { events, first, position } = held.current;
  return { events, first, position, state, version, earlier, error };
}
