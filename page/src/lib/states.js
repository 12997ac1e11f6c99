// The states of jobs.
export const ACTIVE = new Set(["queued", "planning", "running", "publishing"]);
