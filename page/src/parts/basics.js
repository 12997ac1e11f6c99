// Small parts that every view uses.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { signal, useSignal } from "../lib/store.js";
import { words } from "../lib/format.js";

const TONES = {
  successful: "good",
  alive: "good",
  done: "good",
  failed: "bad",
  lost: "bad",
  running: "going",
  planning: "going",
  publishing: "going",
  draining: "warn",
  quarantined: "warn",
  no_space: "warn",
  no_place: "warn",
};

export function tone(state) {
  return TONES[state] ?? "idle";
}

export function State({ of }) {
  return html`<span class=${`state ${tone(of)}`}>${words(of)}</span>`;
}

/** How much of `total` is done and under way. */
export function Progress({ done, going = 0, total, isBad = false, label }) {
  const part = (n) => `${total ? (100 * Math.min(n, total)) / total : 0}%`;
  return html`<div
    class="progress"
    role="progressbar"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax=${total}
    aria-valuenow=${done}
    title=${label}
  >
    <i class=${isBad ? "bad" : ""} style=${{ width: part(done) }}></i>
    <i class="going" style=${{ width: part(going) }}></i>
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

/** What went wrong while something was read. While nobody answers, the frame says so, once for all. */
export function Problem({ error, what, again }) {
  if (!error || error.status === 0) return null;
  const isMissing = error.status === 404;
  return html`<div class="note bad" role="alert">
    <span class="grow">${isMissing ? "" : `${what} could not be read: `}${error.message}</span>
    ${again && !isMissing && html`<button class="plain" onClick=${again}>Try again</button>`}
  </div>`;
}

/** What is read, or why there is nothing: children are a function of the data. */
export function Loaded({ of, what, children }) {
  if (of.data !== null) return html`<${Problem} error=${of.error} what=${what} again=${of.again} />${children(of.data)}`;
  if (of.error) return html`<${Problem} error=${of.error} what=${what} again=${of.again} />`;
  return html`<p class="muted" role="status">Reading…</p>`;
}

export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} · Onager` : "Onager";
  }, [title]);
}

/** A text that a click copies. */
export function Copied({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [isDone]);
  if (!navigator.clipboard) return null; // pages over plain HTTP from elsewhere have none
  return html`<button class="plain" aria-label=${label} onClick=${() => navigator.clipboard.writeText(text).then(() => setDone(true))}>
    ${isDone ? "Copied" : "Copy"}
  </button>`;
}

// ---------------------------------------------------------------- messages that pass

const toasts = signal([]);
const TOAST_MS = 6000;
let lastToast = 0;

export function say(text, kind = "") {
  const toast = { id: (lastToast += 1), text, kind };
  toasts.value = [...toasts.value, toast];
  setTimeout(() => {
    toasts.value = toasts.value.filter((other) => other !== toast);
  }, TOAST_MS);
}

export function Toasts() {
  const all = useSignal(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map((toast) => html`<div key=${toast.id} class=${`note ${toast.kind}`}>${toast.text}</div>`)}
  </div>`;
}

// ---------------------------------------------------------------- dialogs

export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`<dialog ref=${element} aria-label=${title} onClose=${onClose}>${children}</dialog>`;
}

/** Ask before something is done; `act` gets what was typed. */
export function Confirm({ title, text, field, verb, act, onClose }) {
  const [value, setValue] = useState("");
  const [isGoing, setGoing] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setGoing(true);
    try {
      await act(value);
      onClose();
    } catch (refused) {
      setError(refused);
      setGoing(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      <p class="muted">${text}</p>
      ${field && html`<label>${field}<input value=${value} maxlength="500" onInput=${(e) => setValue(e.currentTarget.value)} /></label>`}
      ${error && html`<div class="note bad" role="alert">${error.message}</div>`}
      <div class="actions">
        <button type="button" onClick=${onClose}>Leave it</button>
        <button class="primary" type="submit" disabled=${isGoing}>${verb}</button>
      </div>
    </form>
  <//>`;
}
