// Curves over steps, drawn by uPlot, with generations as bands and losses and joins as lines.

import { h } from "./dom.js";

const HEIGHT = 175;
const MARKS = { lost: "--red", joined: "--green", accused: "--orange", dismissed: "--red" };
const drawn = new Map(); // by the chart's name: { plot, about, place, shape }

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A figure that stays in the page while that is patched; its newest values stand beside its title. `lines` are
// [column, label, colour]; `about` may name the axis and have `until`, `generations`, `marks` and `stepped`.
export function chart(key, title, lines, columns, about = {}) {
  const axis = about.axis ?? "step";
  const newest =
    lines.length > 6 ? [] : lines.map(([field, label]) => `${label} ${short(columns[field].at(-1))}`);
  queueMicrotask(() => draw(key, lines, columns, { ...about, axis }));
  return h(
    "figure",
    { "data-key": key },
    h(
      "figcaption",
      null,
      h("strong", null, title),
      " ",
      h("span", { class: "quiet newest" }, [...newest, `at ${axis} ${columns.step.at(-1)}`].join(", ")),
    ),
    h("div", {
      id: `chart-${key}`,
      "data-keep": "",
      "data-points": "0",
      role: "img",
      "aria-label": `${title} over ${axis}s`,
    }),
  );
}

const short = (value) => {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
};

function draw(key, lines, columns, about) {
  const place = document.getElementById(`chart-${key}`);
  if (!place) return;
  const kept = drawn.get(key);
  const rows = [columns.step, ...lines.map(([field]) => columns[field])];
  place.dataset.points = String(columns.step.length);
  const shape = lines.map(([, label]) => label).join();
  if (kept && kept.place === place && kept.shape === shape) {
    kept.about = about;
    kept.plot.setData(rows);
    return;
  }
  kept?.plot.destroy();
  const state = { about, place, shape, plot: null };
  state.plot = new uPlot(options(state, lines, place.clientWidth), rows, place);
  drawn.set(key, state);
}

function options(state, lines, width) {
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    padding: [10, 14, 0, 0],
    scales: { x: { time: false, range: () => [0, Math.max(state.about.until ?? 2, 2)] } },
    legend: { show: lines.length <= 16, live: true, markers: { width: 2 } },
    cursor: { points: { size: 6 } },
    axes: [
      { ...axis, size: 30 },
      { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
    ],
    series: [
      { label: state.about.axis },
      ...lines.map(([, label, name]) => ({
        label,
        stroke: colour(name),
        width: 1.6,
        paths: state.about.stepped ? uPlot.paths.stepped({ align: 1 }) : null,
        points: { show: (plot) => plot.data[0].length < 12 },
        value: (_, value) => (value === null || value === undefined ? "–" : short(value)),
      })),
    ],
    hooks: {
      drawClear: [(plot) => bands(plot, state.about.generations ?? [])],
      draw: [(plot) => marks(plot, state.about.marks ?? [])],
    },
  };
}

function bands(plot, generations) {
  const { ctx, bbox } = plot;
  const starts = generations.map((one) => one.first_step);
  ctx.save();
  ctx.fillStyle = colour("--band");
  starts.forEach((start, place) => {
    if (place % 2 === 0) return;
    const from = clamp(plot, start);
    const until = place + 1 < starts.length ? clamp(plot, starts[place + 1]) : bbox.left + bbox.width;
    ctx.fillRect(from, bbox.top, Math.max(0, until - from), bbox.height);
  });
  ctx.restore();
}

function marks(plot, all) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio * 1.5;
  ctx.setLineDash([5, 4]);
  for (const mark of all) {
    if (mark.step < plot.scales.x.min || mark.step > plot.scales.x.max) continue;
    const x = clamp(plot, mark.step);
    ctx.strokeStyle = colour(MARKS[mark.kind]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function clamp(plot, step) {
  const { left, width } = plot.bbox;
  return Math.min(Math.max(plot.valToPos(step, "x", true), left), left + width);
}

// Forgets what is no longer in the page; all of it where the colours have changed.
export function forgetCharts(all = false) {
  for (const [key, { plot, place }] of drawn) {
    if (all || !place.isConnected) {
      plot.destroy();
      drawn.delete(key);
    }
  }
}

new ResizeObserver(() => {
  for (const { plot, place } of drawn.values()) {
    if (place.isConnected && place.clientWidth !== plot.width)
      plot.setSize({ width: place.clientWidth, height: HEIGHT });
  }
}).observe(document.body);
