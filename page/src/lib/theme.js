// Light or dark: as the system says, unless somebody chose.
import { signal } from "./store.js";

const KEY = "onager.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is forbidden
  }
}

export const theme = signal("");

function apply() {
  theme.value = stored() || (system.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme.value;
}

export function switchTheme() {
  const next = theme.value === "dark" ? "light" : "dark";
  try {
    // What the system says is not stored, so that the page goes on following it.
    if ((next === "dark") === system.matches) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    theme.value = next;
    document.documentElement.dataset.theme = next;
    return;
  }
  apply();
}

system.addEventListener("change", apply);
apply();
