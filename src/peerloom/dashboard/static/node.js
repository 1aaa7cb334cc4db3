// One node: what it is, why it is believed, and how that came about.

import { actionButton } from "./actions.js";
import { chart } from "./charts.js";
import { empty, facts, h, table } from "./dom.js";
import { eventTable } from "./network.js";
import { asOf } from "./told.js";
import { bytes, clock, figure, percent, plural, spaced, whole } from "./words.js";

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
  const history = seen.node?.name === name ? seen.node : null;
  return [
    h("h1", null, node.name, " ", h("span", { class: `state ${node.state}` }, node.state)),
    h("p", { class: "quiet" }, node.reason),
    nodeFacts(node),
    drain(seen, node),
    h("h2", null, "Why it is believed"),
    asOf(seen, "selector"),
    h(
      "div",
      { "data-from": "selector" },
      belief ? beliefParts(belief) : h("p", { class: "quiet" }, "The selector hasn't told of it yet."),
      beliefHistory(node, history),
    ),
    h("h2", null, "What happened to it"),
    eventTable(
      (seen.events ?? []).filter((event) => event.node === name),
      false,
    ),
  ].filter(Boolean);
}

function nodeFacts(node) {
  return facts([
    ["slots", node.used === null ? whole(node.slots) : `${node.used} of ${node.slots} in use`],
    ...inUse(node),
    ["owner", node.owner],
    [
      "works on",
      node.jobs.length
        ? h(
            "span",
            { "data-from": "trainer" },
            node.jobs.map((job) => [h("a", { href: `#/jobs/${job}` }, job), " "]),
          )
        : null,
    ],
    ["address", node.via ? `${node.address} through ${node.via}` : node.address],
    ["devices", node.accelerators.join(", ")],
    ["one slot", node.gflops ? `${whole(node.gflops)} GFLOP/s` : null],
    ["registry answers in", node.heartbeat_ms === null ? null : `${node.heartbeat_ms} ms`],
    ["draining", node.draining ? "yes" : null],
    ["lends nothing", node.withheld],
    ["last seen", node.last_seen ? clock(node.last_seen) : null],
  ]);
}

// How busy its machine is, by all that runs there; of a node that is away nothing is known.
function inUse(node) {
  const load = node.load;
  if (!load) return node.used === null ? [] : [["load", "unknown: its agent hasn't told it"]];
  const memory = (one) => `${bytes(one.memory_used_bytes)} of ${bytes(one.memory_total_bytes)}`;
  return [
    ["cores in use", `${percent(load.cpu)} of ${load.cores}, ${percent(load.own_cpu)} by Peerloom`],
    ["memory in use", memory(load)],
    ...load.gpus.map((gpu, place) => [`gpu ${place} in use`, `${percent(gpu.use)}, ${memory(gpu)}`]),
  ];
}

function drain(seen, node) {
  if (node.draining) return actionButton(seen, "undrain", node.name, "Take it back into service …");
  return node.state === "alive" ? actionButton(seen, "drain", node.name, "Drain it …") : null;
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

const HISTORY_CHARTS = [
  ["belief", "Belief", [["belief", "belief", "--blue"]]],
  [
    "scores",
    "What it is made of",
    [
      ["score_new", "score new", "--blue"],
      ["time_score", "time score", "--green"],
      ["score_reduce", "score reduce", "--red"],
    ],
  ],
  [
    "counts",
    "What was counted",
    [
      ["transmissions", "transmissions", "--blue"],
      ["trainings", "trainings", "--green"],
      ["interruptions", "interruptions", "--red"],
      ["unfinished", "unfinished", "--orange"],
      ["lies", "lies", "--purple"],
    ],
  ],
];

// Each term over the updates of the belief: time would put a burst of them on one spot.
function beliefHistory(node, history) {
  if (history?.trouble && !history.steps) return [h("p", { class: "bad" }, history.trouble)];
  const steps = (history?.steps ?? []).filter((one) => one.terms);
  if (steps.length < 2) return [];
  const columns = { step: steps.map((one) => one.updates), belief: steps.map((one) => one.belief) };
  for (const [key] of TERMS) columns[key] = steps.map((one) => one.terms[key]);
  const newest = [...steps].reverse().slice(0, 12);
  return [
    h("h2", null, "How it came about"),
    history.trouble ? h("p", { class: "bad" }, history.trouble) : null,
    h(
      "div",
      { class: "charts" },
      HISTORY_CHARTS.map(([key, title, lines]) =>
        chart(`${node.id}-${key}`, title, lines, columns, { axis: "update", until: columns.step.at(-1) }),
      ),
    ),
    table(
      ["#update", "when", "evidence", "#belief"],
      newest.map((one) => ({
        kind: ["interruption", "unfinished", "lie"].includes(one.evidence?.kind) ? "bad" : null,
        cells: [
          whole(one.updates),
          clock(one.time),
          one.evidence ? `${spaced(one.evidence.kind)} ${one.evidence.detail}` : "",
          figure(one.belief),
        ],
      })),
      "The newest updates of the belief",
    ),
  ].filter(Boolean);
}
