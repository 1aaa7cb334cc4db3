// The models that jobs left, and which began with which.

import { code, empty, h, svg, table } from "./dom.js";
import { link, metricOf } from "./jobs.js";
import { bytes, clock } from "./words.js";

const BOX = { width: 168, height: 44, right: 60, below: 14 };
const CHARACTERS = 20;

export function modelsPage(seen) {
  const models = seen.models ?? [];
  if (seen.models && !models.length) {
    return [
      h("h1", null, "Models"),
      empty(
        "No job has left a model yet.",
        h(
          "span",
          null,
          "Train one with ",
          code("peerloom train digits"),
          ": it is listed here once the job has succeeded.",
        ),
      ),
    ];
  }
  const rows = models.map((model) => ({
    cells: [
      h("a", { href: askLink(model) }, model.reference),
      model.task,
      metricOf(model),
      model.began_with || "fresh parameters",
      link(model.job),
      bytes(model.size_bytes),
      h("code", { title: model.digest }, model.digest.slice(0, 12)),
      clock(model.created),
    ],
  }));
  return [
    h("h1", null, "Models"),
    h("p", { class: "quiet" }, "Choose one to ask it. Take it with ", code("peerloom models get"), "."),
    table(
      ["model", "task", "metric", "began with", "job", "#size", "digest", "made"],
      rows,
      "Models, newest first",
    ),
    ...lineage(models),
  ];
}

const askLink = (model) => `#/models/${model.digest}`;

// Who began with whom, from left to right; models without relations are in the table only.
function lineage(models) {
  const known = new Map(models.map((model) => [model.reference, model]));
  const children = new Map();
  for (const model of [...models].reverse())
    if (model.began_with)
      children.set(model.began_with, [...(children.get(model.began_with) ?? []), model.reference]);
  const roots = [...children.keys()].filter((name) => !known.get(name)?.began_with);
  if (!roots.length) return [];
  const placed = new Map();
  let row = 0;
  const place = (name, column) => {
    if (placed.has(name)) return;
    placed.set(name, { column, row });
    const next = children.get(name) ?? [];
    if (!next.length) row += 1;
    for (const child of next) place(child, column + 1);
  };
  for (const root of roots) place(root, 0);
  const columns = Math.max(...[...placed.values()].map((one) => one.column)) + 1;
  const width = columns * (BOX.width + BOX.right) - BOX.right + 2;
  const height = row * (BOX.height + BOX.below) - BOX.below + 2;
  const lines = [...children].flatMap(([parent, names]) =>
    names.map((name) => line(placed.get(parent), placed.get(name))),
  );
  const boxes = [...placed].map(([name, at]) => box(name, at, known.get(name)));
  return [
    h("h2", null, "Which began with which"),
    h(
      "div",
      { class: "scroll picture", tabindex: "0", role: "region", "aria-label": "Lineage of the models" },
      svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, lines, boxes),
    ),
  ];
}

const corner = ({ column, row }) => [
  1 + column * (BOX.width + BOX.right),
  1 + row * (BOX.height + BOX.below),
];

function line(from, to) {
  const [x, y] = corner(from);
  const [right, below] = corner(to);
  const middle = BOX.height / 2;
  const half = BOX.right / 2;
  const path = `M${x + BOX.width} ${y + middle}h${half}V${below + middle}h${right - x - BOX.width - half}`;
  return svg("path", { class: "wire", d: path });
}

function box(name, at, model) {
  const [x, y] = corner(at);
  const shown = name.length > CHARACTERS ? `${name.slice(0, CHARACTERS - 1)}…` : name;
  const parts = [
    svg("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { x: x + 10, y: y + 19 }, shown),
    svg("text", { class: "small", x: x + 10, y: y + 35 }, model ? metricOf(model) : "no longer kept"),
    svg("title", null, name),
  ];
  return model ? svg("a", { href: askLink(model) }, parts) : svg("g", null, parts);
}
