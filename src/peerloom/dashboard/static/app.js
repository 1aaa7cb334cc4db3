// The stream of what changes, the page that is looked at, and what to say when something is away.

import { forgetCharts } from "./charts.js";
import { h, patchChildren } from "./dom.js";
import { jobPage } from "./job.js";
import { jobsPage, modelsPage } from "./jobs.js";
import { eventsPage, networkPage, nodePage } from "./network.js";
import { clock } from "./words.js";

const SECTIONS = ["services", "nodes", "events", "jobs", "models", "beliefs", "job"];
const NEEDS = {
  network: "registry",
  node: "registry",
  events: "registry",
  jobs: "trainer",
  job: "trainer",
  models: "trainer",
};
const seen = {};
const states = new Map();
const main = document.getElementById("main");
let stream = null;
let streamJob = null;
let unheardSince = null;
let planned = false;

function route() {
  const [page, name] = location.hash.replace(/^#\/?/, "").split("/");
  const item = name ? decodeURIComponent(name) : "";
  if (page === "jobs") return item ? { page: "job", item } : { page: "jobs" };
  if (page === "nodes" && item) return { page: "node", item };
  return { page: ["models", "events"].includes(page) ? page : "network" };
}

const PAGES = {
  network: networkPage,
  node: nodePage,
  events: eventsPage,
  jobs: jobsPage,
  job: jobPage,
  models: modelsPage,
};

function show() {
  planned = false;
  const { page, item } = route();
  const away = seen.services?.services[NEEDS[page]]?.away_since;
  main.classList.toggle("stale", Boolean(away || unheardSince));
  const asking = h("p", { class: "quiet" }, "Asking the system …");
  const parts = needed(page) ? PAGES[page](seen, item) : [asking];
  patchChildren(main, parts);
  forgetCharts();
  patchChildren(document.getElementById("services"), banners());
  document.getElementById("address").textContent = seen.services?.address ?? "";
  document.title = `${item || page[0].toUpperCase() + page.slice(1)} · Peerloom`;
}

// Whether what the page shows was ever told: before that, an empty list would be a claim.
function needed(page) {
  const service = seen.services?.services[NEEDS[page]];
  return Boolean(service) && !service.awaited && !(service.away_since && !service.answered);
}

function banners() {
  if (unheardSince)
    return [
      h(
        "p",
        { class: "away" },
        `This window's own process is away since ${clock(unheardSince)}; it is asked again.`,
      ),
    ];
  return Object.entries(seen.services?.services ?? {})
    .filter(([, one]) => one.away_since)
    .map(([name, one]) =>
      h(
        "p",
        { class: "away" },
        h("strong", null, `${name} away since ${clock(one.away_since)}`),
        one.answered ? `; what it told is as of ${clock(one.answered)}. ` : ". ",
        h("span", { class: "quiet" }, one.trouble),
      ),
    );
}

function plan() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(show);
}

function listen() {
  const { page, item } = route();
  const job = page === "job" ? item : "";
  if (stream && job === streamJob) return;
  stream?.close();
  streamJob = job;
  delete seen.job;
  stream = new EventSource(job ? `stream?job=${encodeURIComponent(job)}` : "stream");
  for (const name of SECTIONS) {
    stream.addEventListener(name, (event) => {
      unheardSince = null;
      seen[name] = JSON.parse(event.data);
      if (name === "nodes") tellChanges(seen.nodes);
      plan();
    });
  }
  stream.addEventListener("open", () => {
    unheardSince = null;
    plan();
  });
  stream.addEventListener("error", () => {
    unheardSince ??= new Date().toISOString();
    plan();
  });
}

// Says aloud what a screen reader's user can't see turn red.
function tellChanges(nodes) {
  const said = [];
  for (const node of nodes) {
    const before = states.get(node.id);
    if (before && before !== node.state) said.push(`${node.name} is ${node.state}`);
    states.set(node.id, node.state);
  }
  if (said.length) document.getElementById("said").replaceChildren(h("p", null, said.join(", ")));
}

function go() {
  const { page } = route();
  const section = { node: "network", job: "jobs" }[page] ?? page;
  for (const link of document.querySelectorAll("nav a")) {
    const target = link.getAttribute("href").slice(2) || "network";
    if (target === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  listen();
  show();
}

addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#/") && location.hash) return;
  main.replaceChildren();
  go();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetCharts(true);
  plan();
});
go();
