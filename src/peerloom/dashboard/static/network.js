// The network: every node, and one node with its belief term by term.

import { code, empty, facts, h, table } from "./dom.js";
import { byName, clock, figure, plural, spaced, whole } from "./words.js";

export function networkPage(seen) {
  const nodes = [...(seen.nodes ?? [])].sort(byName);
  if (seen.nodes && !nodes.length) {
    return [
      h("h1", null, "Network"),
      empty(
        "No node has registered yet.",
        h(
          "span",
          null,
          "Start some on this machine with ",
          code("peerloom up"),
          ", or lend this one with ",
          code("peerloom node"),
          ".",
        ),
      ),
    ];
  }
  return [h("h1", null, "Network"), summary(nodes), h("ul", { class: "tiles" }, nodes.map(tile))];
}

function summary(nodes) {
  const states = ["alive", "suspect", "dead", "left"].map((state) => [
    state,
    nodes.filter((node) => node.state === state).length,
  ]);
  const there = nodes.filter((node) => node.used !== null);
  const used = there.reduce((sum, node) => sum + node.used, 0);
  const slots = there.reduce((sum, node) => sum + node.slots, 0);
  return h(
    "p",
    { class: "summary" },
    plural(nodes.length, "node"),
    ": ",
    states
      .filter(([, count]) => count)
      .map(([state, count]) => h("span", { class: `state ${state}` }, `${count} ${state}`)),
    h("span", null, `${whole(used)} of ${plural(slots, "slot")} in use`),
  );
}

function tile(node) {
  const state = node.state === "alive" && (node.draining || node.withheld) ? "draining" : node.state;
  return h(
    "li",
    { class: `tile ${state}`, "data-key": node.id, "data-node": node.name },
    h("a", { class: "name", href: `#/nodes/${encodeURIComponent(node.name)}`, title: node.name }, node.name),
    h("span", { class: `state ${state}` }, state),
    h(
      "span",
      { class: "slots" },
      node.used === null ? plural(node.slots, "slot") : `${node.used} of ${plural(node.slots, "slot")}`,
    ),
    slotBar(node),
    h("span", { class: "owner" }, node.owner),
    h(
      "span",
      { class: "belief", title: "what the selector believes of it" },
      node.belief === null ? "" : `belief ${figure(node.belief, 2)}`,
    ),
    h(
      "span",
      { class: "work" },
      node.jobs.map((job) => h("a", { href: `#/jobs/${job}` }, job)),
    ),
  );
}

function slotBar(node) {
  const shown = Math.min(node.slots, 16);
  const used = node.used === null ? 0 : Math.round((node.used / Math.max(node.slots, 1)) * shown);
  return h(
    "span",
    { class: "bar", "aria-hidden": "true" },
    Array.from({ length: shown }, (_, place) => h("i", { class: place < used ? "used" : null })),
  );
}

export function nodePage(seen, name) {
  const node = (seen.nodes ?? []).find((one) => one.name === name);
  if (!node) {
    return [
      h("h1", null, name),
      empty(
        "The registry knows no node of this name.",
        h("span", null, "It may have been removed; ", h("a", { href: "#/events" }, "the events"), " tell."),
      ),
    ];
  }
  const belief = (seen.beliefs ?? []).find((one) => one.id === node.id);
  return [
    h("h1", null, node.name, " ", h("span", { class: `state ${node.state}` }, node.state)),
    h("p", { class: "quiet" }, node.reason),
    facts([
      ["slots", node.used === null ? whole(node.slots) : `${node.used} of ${node.slots} in use`],
      ["owner", node.owner],
      ["works on", node.jobs.length ? node.jobs.map((job) => h("a", { href: `#/jobs/${job}` }, job)) : null],
      ["address", node.via ? `${node.address} through ${node.via}` : node.address],
      ["devices", node.accelerators.join(", ")],
      ["one slot", node.gflops ? `${whole(node.gflops)} GFLOP/s` : null],
      ["draining", node.draining ? "yes" : null],
      ["lends nothing", node.withheld],
      ["last seen", node.last_seen ? clock(node.last_seen) : null],
    ]),
    h("h2", null, "Why it is believed"),
    ...(belief ? beliefParts(belief) : [h("p", { class: "quiet" }, "The selector hasn't told of it yet.")]),
    h("h2", null, "What happened to it"),
    eventTable(
      (seen.events ?? []).filter((event) => event.node === name),
      false,
    ),
  ];
}

const TERMS = [
  ["score_old", "score before"],
  ["transmissions", "transmissions"],
  ["trainings", "trainings"],
  ["delay_s", "delay in s"],
  ["ended_online_log", "sum of ln(online + 1), ended sessions"],
  ["open_online_s", "open session in s"],
  ["interruptions", "interruptions"],
  ["unfinished", "refused or unfinished"],
  ["lies", "lies"],
  ["score_new", "score new"],
  ["time_score", "time score"],
  ["score_reduce", "score reduce"],
];

function beliefParts(belief) {
  if (!belief.terms) {
    return [
      h(
        "p",
        null,
        "Belief 0: there is no evidence about it yet. It comes with its first transfers and trainings.",
      ),
    ];
  }
  const rows = TERMS.map(([key, label]) => ({
    cells: [label, figure(belief.terms[key], Number.isInteger(belief.terms[key]) ? 0 : 4)],
  }));
  const newest = belief.evidence;
  return [
    h(
      "p",
      null,
      "Belief ",
      h("strong", null, figure(belief.belief)),
      ` after ${plural(belief.updates, "update")}`,
      newest
        ? `; the newest evidence is of ${clock(newest.time)}: ${spaced(newest.kind)} ${newest.detail}`
        : "",
    ),
    h(
      "div",
      { class: "columns" },
      table(["term", "#value"], rows, "The belief's terms"),
      h("pre", { tabindex: "0" }, belief.formula),
    ),
  ];
}

export function eventsPage(seen) {
  const events = seen.events ?? [];
  const body =
    seen.events && !events.length
      ? empty(
          "Nothing has happened yet.",
          h("span", null, "Nodes that register, are suspected, leave or are lost are told of here."),
        )
      : eventTable(events);
  return [h("h1", null, "Events"), body];
}

function eventTable(events, withNode = true) {
  if (!events.length) return h("p", { class: "quiet" }, "Nothing that the registry still remembers.");
  const rows = events.map((event) => ({
    kind: event.kind === "interrupted" ? "bad" : null,
    cells: [
      clock(event.time),
      ...(withNode ? [h("a", { href: `#/nodes/${encodeURIComponent(event.node)}` }, event.node)] : []),
      spaced(event.kind),
      event.reason,
    ],
  }));
  return table(["when", ...(withNode ? ["node"] : []), "what", "why"], rows, "Events of nodes, newest first");
}
