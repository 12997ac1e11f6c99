// Who looks at the page, and what they may do.
import { get, isLoginNeeded } from "./api.js";
import { signal } from "./store.js";

export const session = signal(null);

export async function readSession() {
  try {
    session.value = await get("/whoami");
  } catch (error) {
    if (error.status === 401) isLoginNeeded.value = true;
    session.value = null;
  }
}

export function may(what) {
  return session.value?.may.includes(what) ?? false;
}
