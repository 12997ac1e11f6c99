// The scheduler's HTTP interface. Whether it answers at all is known to the whole page.
import { signal } from "./store.js";

export const API = "/api/v1";

/** Since when (ms) no scheduler has answered; 0: one answers. */
export const lostSince = signal(0);

/** Whether somebody has to log in first. */
export const isLoginNeeded = signal(false);

/** A request that was refused, or that got no answer (status 0). */
class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The scheduler answered with status ${status}.`);
    this.name = "ApiError";
    this.status = status;
    this.title = problem.title ?? "";
    /** Whether the same request may succeed a little later. */
    this.isPassing = status === 0 || problem.retryable === true;
    this.mistakes = problem.mistakes ?? [];
  }
}

/** Return the answer of the scheduler, decoded; `ApiError` when it is none, or a refusal. */
export async function call(path, options) {
  let response;
  try {
    response = await fetch(API + path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lostSince.value ||= Date.now();
    throw new ApiError(0, { title: "No answer", detail: "No scheduler answers. The page goes on when one does." });
  }
  if ([502, 503, 504].includes(response.status) && !isJson(response)) {
    // What a load balancer says while the scheduler behind it is gone.
    lostSince.value ||= Date.now();
    throw new ApiError(0, { title: "No answer", detail: "No scheduler answers. The page goes on when one does." });
  }
  lostSince.value = 0;
  if (response.ok) {
    isLoginNeeded.value = false;
    return response.status === 204 ? null : isJson(response) ? response.json() : response.text();
  }
  const problem = isJson(response) ? await response.json() : {};
  if (response.status === 401) isLoginNeeded.value = true;
  throw new ApiError(response.status, problem);
}

function isJson(response) {
  return (response.headers.get("content-type") ?? "").includes("json");
}

export function get(path, signalToStop) {
  return call(path, { signal: signalToStop });
}

export function post(path, body = {}) {
  return call(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** "?a=1&b=2" of what has a value. */
export function query(parameters) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== "" && value !== null && value !== undefined) made.set(name, value);
  }
  const text = made.toString();
  return text ? `?${text}` : "";
}
