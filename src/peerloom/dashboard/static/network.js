// The network: every node, who works with whom, and what happened.

import { code, empty, h, table } from "./dom.js";
import { testbedPart } from "./testbed.js";
import { topologyPart } from "./topology.js";
import { byName, clock, figure, percent, plural, spaced, whole } from "./words.js";

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
  return [
    h("h1", null, "Network"),
    summary(nodes),
    tiles(nodes),
    h("h2", null, "Who works with whom"),
    ...topologyPart(seen, nodes),
    ...testbedPart(seen.testbed),
  ];
}

export const tiles = (nodes) => h("ul", { class: "tiles" }, nodes.map(tile));

export function summary(nodes) {
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
    loadBars(node),
    h("span", { class: "owner" }, node.owner),
    h(
      "span",
      { class: "belief", "data-from": "selector", title: "what the selector believes of it" },
      node.belief === null ? "" : `belief ${figure(node.belief, 2)}`,
    ),
    h(
      "span",
      { class: "work", "data-from": "trainer" },
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

// What of its machine is in use, beside the slots in use: by words, and by bars for those who see.
function loadBars(node) {
  if (node.used === null) return null;
  if (!node.load) return h("span", { class: "load unknown" }, "load unknown");
  const parts = [
    ["cpu", node.load.cpu],
    ["mem", node.load.memory],
    ...(node.load.gpus.length ? [["gpu", node.load.gpu]] : []),
  ];
  return h(
    "span",
    { class: "load" },
    parts.map(([name, part]) =>
      h(
        "span",
        null,
        h("progress", { max: 1, value: part ?? 0, "aria-hidden": "true" }),
        ` ${name} ${percent(part)} `,
      ),
    ),
  );
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

export function eventTable(events, withNode = true) {
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
