// The page for a screen on a wall: no links to follow, everything that matters large, nothing to scroll.

import { h } from "./dom.js";
import { badge, metricOf, progress, speedOf } from "./jobs.js";
import { summary, tiles } from "./network.js";
import { byName, clock, figure, spaced } from "./words.js";

const JOBS = 4;
const EVENTS = 6;

export function wallPage(seen) {
  const nodes = [...(seen.nodes ?? [])].sort(byName);
  const going = (seen.jobs ?? []).filter((job) => !job.ended);
  const shown = (going.length ? going : (seen.jobs ?? [])).slice(0, JOBS);
  return [
    h("h1", null, "Peerloom"),
    nodes.length ? summary(nodes) : h("p", null, "No node has registered yet."),
    h("section", { class: nodes.length > 40 ? "many" : null, "aria-label": "Nodes" }, tiles(nodes)),
    h("section", { class: "cards", "aria-label": "Jobs", "data-from": "trainer" }, shown.map(card)),
    h(
      "ul",
      { class: "ticker", "aria-label": "Newest events" },
      (seen.events ?? [])
        .slice(0, EVENTS)
        .map((one) => h("li", null, `${clock(one.time)} ${one.node} ${spaced(one.kind)}`)),
    ),
  ];
}

function card(job) {
  return h(
    "article",
    { "data-key": job.id },
    h("h2", null, job.name || job.task, " ", badge(job.state)),
    job.total_steps ? progress(job) : h("p", { class: "quiet" }, job.reason),
    h("p", null, `loss ${figure(job.loss, 3)}, ${metricOf(job)}, ${speedOf(job)}`),
  );
}
