// A job's curves over its steps: what it learns, how fast, and how the work is divided.

import { chart } from "./charts.js";
import { h } from "./dom.js";

const COLOURS = ["--blue", "--orange", "--green", "--purple", "--red", "--accent"];

export function charts(job) {
  if (!job.steps?.step.length && job.is_script && job.ended) return []; // it was no elastic one
  if (!job.steps?.step.length) {
    return [
      h(
        "p",
        { class: "quiet" },
        job.ended ? "It ended before its first step." : "The curves begin with the first step.",
      ),
    ];
  }
  const note =
    job.stride > 1 ? h("p", { class: "quiet" }, `Each point is a mean over ${job.stride} steps.`) : null;
  const metric = job.epochs[0]?.name ?? "metric";
  const { generations, marks } = job;
  const about = { until: job.steps.step.at(-1), generations, marks };
  const draw = (name, title, lines, columns = job.steps, more = {}) =>
    chart(`${job.id}-${name}`, title, lines, columns, { ...about, ...more });
  const figures = [
    draw("loss", "Loss", [["loss", "loss", "--blue"]]),
    draw("speed", "Samples a second", [["samples_per_s", "samples/s", "--green"]]),
    draw("time", "Time of a step", [
      ["compute_ms", "computing, ms", "--blue"],
      ["communication_ms", "communicating, ms", "--orange"],
    ]),
    draw("bytes", "Sent by one worker in a step", [["kilobytes", "kB", "--purple"]]),
  ];
  if (job.epochs.length) {
    const columns = { step: job.epochs.map((one) => one.step), metric: job.epochs.map((one) => one.metric) };
    figures.splice(
      1,
      0,
      draw("metric", `Test ${metric}, by epoch`, [["metric", metric, "--purple"]], columns),
    );
  }
  const shares = shareColumns(job);
  if (shares)
    figures.push(
      draw("shares", "Each worker's share of a batch, %", shares.lines, shares.columns, { stepped: true }),
    );
  Object.entries(job.logged).forEach(([name, columns], place) => {
    const named = { step: columns.step, logged: columns[name] };
    figures.push(draw(`logged-${place}`, `Logged: ${name}`, [["logged", name, "--green"]], named));
  });
  return [h("h2", null, "Curves"), legend(job), h("div", { class: "charts" }, figures), note].filter(Boolean);
}

function legend(job) {
  const kinds = new Set(job.marks.map((mark) => mark.kind));
  const words = {
    lost: "a worker was lost",
    joined: "a node joined",
    accused: "a node was accused",
    dismissed: "a node was dismissed",
  };
  return h(
    "p",
    { class: "legend" },
    h(
      "span",
      null,
      job.generations.length === 1
        ? "One generation of workers."
        : `Bands are the ${job.generations.length} generations of workers.`,
    ),
    Object.entries(words)
      .filter(([kind]) => kinds.has(kind))
      .map(([kind, text]) => h("span", { class: `mark ${kind}` }, text)),
  );
}

// The part of a batch that each worker takes, as steps; null where nobody told of a division.
function shareColumns(job) {
  const workers = Object.entries(job.homes);
  if (workers.length < 2) return null;
  const last = job.divisions.at(-1);
  const all = [...job.divisions, { ...last, step: Math.max(job.steps.step.at(-1), last.step) }];
  const columns = { step: all.map((one) => one.step) };
  const nodes = workers.map(([, node]) => node);
  const lines = workers.map(([id, node], place) => {
    columns[id] = all.map(({ parts }) => (id in parts ? 100 * parts[id] : null));
    const before = nodes.slice(0, place).filter((other) => other === node).length;
    const label = nodes.indexOf(node) === nodes.lastIndexOf(node) ? node : `${node} (${before + 1})`;
    return [id, label, COLOURS[place % COLOURS.length]];
  });
  return { lines, columns };
}
