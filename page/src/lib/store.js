// Values that several parts of the page look at.
import { useEffect, useState } from "preact/hooks";

/** A value that tells when it changes. */
export function signal(initial) {
  let value = initial;
  const listeners = new Set();
  return {
    get value() {
      return value;
    },
    set value(next) {
      if (next === value) return;
      value = next;
      for (const listener of [...listeners]) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useSignal(source) {
  const [, draw] = useState(0);
  const value = source.value;
  useEffect(() => {
    if (source.value !== value) draw((n) => n + 1); // it changed before this began to listen
    return source.listen(() => draw((n) => n + 1));
  }, [source]);
  return value;
}
