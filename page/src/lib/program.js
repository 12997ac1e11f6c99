// A program as the page shows it: its calls, and what it prints.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, query } from "./api.js";
import { useStream } from "./live.js";

const AGAIN_MS = 2000;
const PACE = 10; // what takes long to read is read less often
const MAX_CHARS = 500_000;
const DRAW_MS = 200;

/** The calls of a program in the order of their beginnings, null until they are read; again and again while it goes on. */
export function useCalls(programId, isGoing) {
  const [state, setState] = useState({ calls: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const read = async () => {
      const begunMs = Date.now();
      let isAgain = isGoing;
      try {
        if (!document.hidden) setState({ calls: await all(programId, stop.signal), error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        isAgain ||= error.isPassing;
        setState((old) => ({ calls: old.calls, error }));
      }
      if (isAgain || document.hidden) timer = setTimeout(read, Math.max(AGAIN_MS, PACE * (Date.now() - begunMs)));
    };
    read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [programId, isGoing]);
  return state;
}

async function all(programId, signalToStop) {
  const calls = [];
  let cursor = "";
  do {
    const page = await get(`/programs/${encodeURIComponent(programId)}/calls${query({ cursor })}`, signalToStop);
    calls.push(...page.items);
    cursor = page.next;
  } while (cursor);
  return calls.sort((a, b) => a.at_ms - b.at_ms || a.number - b.number);
}

/**
 * What a program prints, up to its end: parts of one attempt and one stream each, and what the stream of them says. Of a
 * long output the page keeps the end; `leftOut` says that there was more.
 */
export function useOutput(programId) {
  const held = useRef({ parts: [], chars: 0, leftOut: false, position: "", timer: 0 });
  const [, setVersion] = useState(0);
  const url = () => `/programs/${encodeURIComponent(programId)}/output${query({ after: held.current.position })}`;
  const state = useStream(programId, url, (message) => {
    const mine = held.current;
    mine.position = message.lastEventId;
    for (const { text, is_error: isError, attempt, left_out: leftOut } of JSON.parse(message.data)) {
      const last = mine.parts.at(-1);
      mine.leftOut ||= leftOut > 0;
      mine.chars += text.length;
      if (last?.attempt === attempt && last.isError === isError && !leftOut) last.text += text;
      else mine.parts.push({ text, isError, attempt });
    }
    while (mine.chars > MAX_CHARS) {
      const first = mine.parts[0];
      const cut = Math.min(first.text.length, mine.chars - MAX_CHARS);
      first.text = first.text.slice(cut);
      mine.chars -= cut;
      mine.leftOut = true;
      if (!first.text) mine.parts.shift();
    }
    if (mine.timer) return;
    mine.timer = setTimeout(() => {
      mine.timer = 0;
      setVersion((n) => n + 1);
    }, DRAW_MS);
  });
  const { parts, leftOut } = held.current;
  return { parts, leftOut, state };
}
