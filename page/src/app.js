// The frame around every view.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./lib/html.js";
import { call, isLoginNeeded, lostSince } from "./lib/api.js";
import { duration } from "./lib/format.js";
import { features, readFeatures } from "./lib/features.js";
import { useKeys } from "./lib/keys.js";
import { useNow } from "./lib/resource.js";
import { go, usePlace } from "./lib/router.js";
import { may, readSession, session } from "./lib/session.js";
import { useSignal } from "./lib/store.js";
import { switchTheme, theme } from "./lib/theme.js";
import { Dialog, Empty, Toasts, useTitle } from "./parts/basics.js";
import { Mark } from "./parts/mark.js";
import { Audit } from "./views/audit.js";
import { Cluster } from "./views/cluster.js";
import { Executors } from "./views/executors.js";
import { Job } from "./views/job.js";
import { Jobs } from "./views/jobs.js";
import { Login } from "./views/login.js";
import { Schedulers } from "./views/schedulers.js";

const PLACES = [
  { to: "/jobs", name: "Jobs", view: Jobs },
  { to: "/executors", name: "Executors", view: Executors },
  { to: "/schedulers", name: "Schedulers", view: Schedulers },
  { to: "/cluster", name: "Cluster", view: Cluster },
  { to: "/audit", name: "Audit", view: Audit, needs: "audit" },
];
const AGAIN_MS = 1500;

const KEYS = [
  ["j k", "next and previous job"],
  ["Enter", "open it"],
  ["/", "search jobs"],
  ["g", "go: then j jobs, e executors, s schedulers, c cluster, a audit"],
  ["[ ]", "previous and next view of a job"],
  ["u", "up: from a job to all jobs"],
  ["+ - 0 ← →", "timeline: closer, further, all, move"],
  ["t", "light or dark"],
  ["?", "this help"],
];

export function App() {
  const place = usePlace();
  const isAsked = useSignal(isLoginNeeded);
  useEffect(() => {
    readSession();
    readFeatures();
  }, [isAsked]);
  if (isAsked || place.path === "/login") return html`<${Login} isPlace=${place.path === "/login"} /><${Toasts} />`;
  return html`<${Frame} place=${place} /><${Toasts} />`;
}

function Frame({ place }) {
  const who = useSignal(session);
  const isReady = useSignal(features) !== null;
  const [isHelpOpen, setHelpOpen] = useState(false);
  const isGoing = useRef(0);
  const main = useRef(null);
  const jump = (to) => () => {
    if (Date.now() - isGoing.current < AGAIN_MS) go(to);
    isGoing.current = 0;
  };
  useKeys({
    "?": () => setHelpOpen(true),
    t: switchTheme,
    g: () => {
      isGoing.current = Date.now();
    },
    j: jump("/jobs"),
    e: jump("/executors"),
    s: jump("/schedulers"),
    c: jump("/cluster"),
    a: jump("/audit"),
  });
  const places = PLACES.filter((each) => !each.needs || may(each.needs));
  return html`<div class="frame">
      <a class="hidden" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>To the content</a>
      <header class="rail">
        <a class="brand" href="/jobs"><${Mark} /> Onager</a>
        <nav aria-label="Views">
          <ul>
            ${places.map((each) => html`<li key=${each.to}><a href=${each.to} aria-current=${place.path.startsWith(each.to) ? "page" : undefined}>${each.name}</a></li>`)}
          </ul>
        </nav>
        <footer>
          ${who && html`<span class="cut" title=${`answered by ${who.scheduler_id}, version ${who.version}`}>${who.principal || who.scheduler_id}${who.role ? ` (${who.role})` : ""}</span>`}
          <${Theme} />
          <button class="plain" onClick=${() => setHelpOpen(true)}>Keys <kbd>?</kbd></button>
          ${who?.by === "cookie" && html`<${LogOut} />`}
        </footer>
      </header>
      <main class="main" id="main" tabindex="-1" ref=${main}>
        <${Lost} />
        ${isReady && html`<${View} place=${place} />`}
      </main>
    </div>
    ${isHelpOpen && html`<${Help} onClose=${() => setHelpOpen(false)} />`}`;
}

function View({ place }) {
  const [first, jobId, tab = "", ...rest] = place.parts;
  const isTooLong = first === "jobs" ? rest.length > 0 : place.parts.length > 1;
  if (first === undefined) return html`<${Jobs} />`;
  if (first === "jobs" && jobId !== undefined && !isTooLong) return html`<${Job} key=${jobId} jobId=${jobId} tab=${tab} />`;
  const found = PLACES.find((each) => each.to === `/${first}`);
  if (found && !isTooLong) return html`<${found.view} />`;
  return html`<${NotFound} path=${place.path} />`;
}

function NotFound({ path }) {
  useTitle("Not found");
  return html`<section class="card"><${Empty} title="There is nothing here">
    <p>No view of this page is at <code>${path}</code>.</p>
    <a href="/jobs">All jobs</a>
  <//></section>`;
}

/** Says that no scheduler answers, and for how long; and asks again until one does. */
function Lost() {
  const since = useSignal(lostSince);
  const now = useNow(since ? 1000 : 0);
  useEffect(() => {
    if (!since) return undefined;
    const timer = setInterval(() => {
      readSession();
      readFeatures();
    }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [since]);
  if (!since) return null;
  return html`<div class="note warn" role="alert">
    <span class="live lost">reconnecting</span>
    <span class="grow">No scheduler has answered for ${duration(Math.max(0, now - since))}. Jobs do not need this page: they go on. It does, too, as soon as one answers.</span>
  </div>`;
}

function Theme() {
  const now = useSignal(theme);
  return html`<button class="plain" onClick=${switchTheme} aria-label=${`Switch to ${now === "dark" ? "light" : "dark"} colours`}>
    ${now === "dark" ? "Light" : "Dark"} <kbd>t</kbd>
  </button>`;
}

function LogOut() {
  const leave = async () => {
    await call("/login", { method: "DELETE" }).catch(() => null);
    session.value = null;
    isLoginNeeded.value = true;
  };
  return html`<button class="plain" onClick=${leave}>Log out</button>`;
}

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <div class="inside">
      <h2>Keys</h2>
      <dl class="keys">
        ${KEYS.map(([keys, what]) => html`<dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd>`)}
      </dl>
      <form method="dialog" class="actions"><button class="primary">Close</button></form>
    </div>
  <//>`;
}
