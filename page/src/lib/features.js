// What the scheduler that serves the page can do: views and buttons appear only where there is something behind them.
import { signal } from "./store.js";

const paths = signal(null);

/** Read which paths there are, unless that is known. */
export async function readFeatures() {
  if (paths.value !== null) return;
  try {
    const response = await fetch("/openapi.json", { credentials: "same-origin" });
    if (response.ok) paths.value = (await response.json()).paths;
  } catch {
    // No answer: the frame says so, and asks again.
  }
}

export const features = paths;

/** Whether there is a path, written as in the document: has("/jobs/{job_id}/timeline"). */
export function has(path, method = "get") {
  return paths.value?.[`/api/v1${path}`]?.[method] !== undefined;
}
