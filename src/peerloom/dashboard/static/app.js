// The stream of what changes, the page that is looked at, and what to say when something is away.

import { listenForActions } from "./actions.js";
import { artifactsPage } from "./artifacts.js";
import { askPage, listenForQuestions } from "./ask.js";
import { forgetCharts } from "./charts.js";
import { h, patchChildren } from "./dom.js";
import { jobPage } from "./job.js";
import { jobsPage } from "./jobs.js";
import { modelsPage } from "./models.js";
import { eventsPage, networkPage } from "./network.js";
import { nodePage } from "./node.js";
import { awayNow, wasTold } from "./told.js";
import { wallPage } from "./wall.js";
import { clock } from "./words.js";

const SECTIONS = ["window", "services", "nodes", "events", "jobs", "models", "beliefs", "testbed"];
// Each page: what draws it, which service it needs, and the section of its own that the stream brings.
const PAGES = {
  network: { draw: networkPage, needs: "registry" },
  node: { draw: nodePage, needs: "registry", own: "node", under: "network" },
  jobs: { draw: jobsPage, needs: "trainer" },
  job: { draw: jobPage, needs: "trainer", own: "job", under: "jobs" },
  models: { draw: modelsPage, needs: "trainer" },
  ask: { draw: askPage, needs: "trainer", under: "models" },
  artifacts: { draw: artifactsPage, needs: "registry", own: "artifacts" },
  events: { draw: eventsPage, needs: "registry" },
  wall: { draw: wallPage, needs: "registry" },
};
const seen = {};
const states = new Map();
const main = document.getElementById("main");
const isWall = new URLSearchParams(location.search).has("wall");
let stream = null;
let streamOf = null;
let unheardSince = null;
let planned = false;

function route() {
  const [first, name] = location.hash.replace(/^#\/?/, "").split("/");
  const item = name ? decodeURIComponent(name) : "";
  if (isWall) return { page: "wall", item: "" };
  if (first === "jobs" && item) return { page: "job", item };
  if (first === "nodes" && item) return { page: "node", item };
  if (first === "models" && item) return { page: "ask", item };
  return { page: ["jobs", "models", "artifacts", "events"].includes(first) ? first : "network", item: "" };
}

function show() {
  planned = false;
  const { page, item } = route();
  const { needs } = PAGES[page];
  const away = awayNow(seen);
  main.classList.toggle("stale", away.includes(needs) || Boolean(unheardSince));
  main.dataset.away = away.join(" "); // what these told is dimmed on the pages of others too
  const asking = h("p", { class: "quiet" }, "Asking the system …");
  patchChildren(main, wasTold(seen, needs) ? PAGES[page].draw(seen, item) : [asking]);
  forgetCharts();
  patchChildren(document.getElementById("services"), banners());
  document.getElementById("address").textContent = seen.services?.address ?? "";
  document.title = `${item || page[0].toUpperCase() + page.slice(1)} · Peerloom`;
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
  const own = PAGES[page].own;
  const query = own ? `?${new URLSearchParams({ page, item })}` : "";
  if (stream && query === streamOf) return;
  stream?.close();
  streamOf = query;
  for (const one of Object.values(PAGES)) delete seen[one.own];
  stream = new EventSource(`stream${query}`);
  for (const name of own ? [...SECTIONS, own] : SECTIONS) {
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
  const section = PAGES[page].under ?? page;
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
document.body.classList.toggle("wall", isWall);
listenForActions(document.body);
listenForQuestions(main, () => seen.models ?? []);
go();
