// Numbers, times and words for people.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(value) {
  return NUMBER.format(value ?? 0);
}

/** "1 task", "2 tasks". */
export function many(value, one, more = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** Bytes: "12.3 MiB", as `onager.client.amounts` does it. */
export function size(bytes) {
  let amount = bytes ?? 0;
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? amount : amount.toFixed(1)} ${UNITS[unit]}`;
}

/** Milliseconds: "120 ms", "4.2 s", "3 m 05 s", "2 h 04 m", "3 d 2 h". */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const pad = (part) => String(Math.floor(part)).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${pad(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${pad((seconds % 3600) / 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** How long ago a time was, in words. */
export function ago(ms, nowMs) {
  const seconds = Math.max(0, (nowMs - ms) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(ms).toLocaleDateString(undefined, { dateStyle: "medium" });
}

/** The time of the day, to the millisecond. */
export function clock(ms) {
  if (!ms) return "";
  const date = new Date(ms);
  const pad = (part, digits = 2) => String(part).padStart(digits, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function moment(ms) {
  return ms ? new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
}

/** task_succeeded: "task succeeded". */
export function words(name) {
  return (name ?? "").replaceAll("_", " ");
}

export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${Math.floor(share * 100)} %`;
}
