// Real paths, so that every view is a link that can be shared.
import { signal, useSignal } from "./store.js";

const at = signal(location.pathname + location.search);

addEventListener("popstate", () => {
  at.value = location.pathname + location.search;
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const href = link.getAttribute("href");
  if (!href.startsWith("/") || href.startsWith("/api/") || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(href);
});

export function go(to, { isReplacing = false } = {}) {
  if (to === at.value) return;
  history[isReplacing ? "replaceState" : "pushState"](null, "", to);
  at.value = to;
  if (!isReplacing) scrollTo(0, 0);
}

export function usePlace() {
  const [path, search = ""] = useSignal(at).split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { path, parts, query: new URLSearchParams(search) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The present view with other values in its query; empty ones leave it. */
export function withQuery(changes) {
  const made = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) made.set(name, value);
    else made.delete(name);
  }
  const text = made.toString();
  return location.pathname + (text ? `?${text}` : "");
}

export function setQuery(changes) {
  go(withQuery(changes), { isReplacing: true });
}
