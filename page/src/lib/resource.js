// What the scheduler knows, read once or again and again.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, lostSince } from "./api.js";

const AGAIN_MS = 2000;
const NOTHING = { path: null, data: null, error: null };

/**
 * Read `path`, and again every `everyMs` while the page can be seen, or after a failure that passes. What was read stays
 * while it is read again, and while no scheduler answers. A null `path` reads nothing.
 */
export function useResource(path, { everyMs = 0 } = {}) {
  const [state, setState] = useState(NOTHING);
  const going = useRef(null);

  const read = useCallback(async () => {
    if (path === null) return;
    going.current?.abort();
    const mine = new AbortController();
    going.current = mine;
    try {
      const data = await get(path, mine.signal);
      setState({ path, data, error: null });
    } catch (error) {
      if (error.name === "AbortError") return;
      setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
    } finally {
      if (going.current === mine) going.current = null;
    }
  }, [path]);

  useEffect(() => {
    read();
    const timer = everyMs
      ? setInterval(() => {
          if (!document.hidden && going.current === null) read();
        }, everyMs)
      : 0;
    return () => {
      clearInterval(timer);
      going.current?.abort();
      going.current = null;
    };
  }, [read, everyMs]);

  useEffect(
    () =>
      lostSince.listen(() => {
        if (!lostSince.value && state.error?.status === 0) read(); // one answers again
      }),
    [read, state.error],
  );

  useEffect(() => {
    if (everyMs || !state.error?.isPassing) return undefined;
    const timer = setTimeout(read, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [read, everyMs, state.error]);

  const isThis = state.path === path;
  return {
    data: isThis ? state.data : null,
    error: isThis ? state.error : null,
    isLoading: !isThis || (state.data === null && state.error === null),
    again: read,
  };
}

/** The time now, again every `everyMs`; it stands still with 0. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!everyMs) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
