// Who works with whom now: nodes around, jobs in the middle, a line from each job to its nodes.

import { h, svg, table } from "./dom.js";
import { asOf, wasTold } from "./told.js";
import { bytes, plural } from "./words.js";

const SPACING = 17; // between two names on the ring, in units of the drawing
const HORIZONTAL_UNTIL = 14; // fewer names don't have to be turned
const CHARACTERS = 24;
const HUES = 6;

export function topologyPart(seen, nodes) {
  const jobs = seen.jobs ?? [];
  const there = nodes.filter((node) => node.state !== "left");
  const going = jobs.filter((job) => !job.ended && there.some((node) => node.jobs.includes(job.id)));
  const links = new Map((seen.testbed?.hosts ?? []).map((host) => [host.name, host]));
  if (!there.length) return [h("p", { class: "quiet" }, "All nodes have left.")];
  return [
    asOf(seen, "trainer"),
    wasTold(seen, "trainer") ? h("p", { class: "quiet" }, atWork(going)) : null,
    h("div", { class: "scroll picture", "data-from": "trainer" }, drawing(there, going)),
    h(
      "details",
      { "data-key": "links" },
      h("summary", null, "Each node's link as a table"),
      linkTable(there, links),
    ),
  ].filter(Boolean);
}

const atWork = (jobs) =>
  jobs.length
    ? `${plural(jobs.length, "job")} at work. Lines lead from a job to the nodes that work on it.`
    : "No job is at work.";

function drawing(nodes, jobs) {
  const turned = nodes.length > HORIZONTAL_UNTIL;
  const radius = Math.max(115, (SPACING * nodes.length) / (2 * Math.PI));
  const width = 2 * (radius + 190);
  const height = 2 * (radius + (turned ? 190 : 45));
  const around = new Map(nodes.map((node, place) => [node.id, angle(place, nodes.length)]));
  const hubs = jobs.map((job, place) => ({ job, place, ...hub(place, jobs.length, radius) }));
  const lines = hubs.flatMap(({ job, place, x, y }) =>
    nodes
      .filter((node) => node.jobs.includes(job.id))
      .map((node) => {
        const [right, below] = at(around.get(node.id), radius);
        return svg("line", { class: `hue-${place % HUES}`, x1: x, y1: y, x2: right, y2: below });
      }),
  );
  return svg(
    "svg",
    {
      class: "topology",
      viewBox: `${-width / 2} ${-height / 2} ${width} ${height}`,
      width,
      height,
      "aria-hidden": "true", // the tiles and the table say the same
    },
    svg("circle", { class: "ring", r: radius }),
    lines,
    hubs.map(drawHub),
    nodes.map((node) => drawNode(node, around.get(node.id), radius, turned)),
  );
}

const angle = (place, count) => -Math.PI / 2 + (2 * Math.PI * place) / count;
const at = (turn, radius) => [radius * Math.cos(turn), radius * Math.sin(turn)].map((one) => one.toFixed(1));

function hub(place, count, radius) {
  const away = count > 1 ? radius * 0.45 : 0;
  const [x, y] = at(angle(place, count), away);
  return { x, y };
}

function drawHub({ job, place, x, y }) {
  return svg(
    "a",
    { href: `#/jobs/${job.id}`, class: `hub hue-${place % HUES}`, tabindex: -1 },
    svg("circle", { cx: x, cy: y, r: 9 }),
    svg("text", { x, y: Number(y) - 14, "text-anchor": "middle" }, shortened(job.name || job.task)),
    svg("title", null, `${job.id}: ${job.state}`),
  );
}

function drawNode(node, turn, radius, turned) {
  const [x, y] = at(turn, radius);
  const left = Math.cos(turn) < -0.001;
  const [nameX, nameY] = at(turn, radius + 13);
  const degrees = (turn * 180) / Math.PI + (left ? 180 : 0);
  const upright = Math.abs(Math.cos(turn)) < 0.001 && !turned;
  return svg(
    "a",
    {
      href: `#/nodes/${encodeURIComponent(node.name)}`,
      class: `spot ${node.state}`,
      "data-spot": node.name,
      tabindex: -1,
    },
    svg("circle", { cx: x, cy: y, r: turned ? 5 : 8 }),
    svg(
      "text",
      {
        x: nameX,
        y: upright ? Number(nameY) + (Math.sin(turn) > 0 ? 10 : -4) : nameY,
        "dominant-baseline": upright ? null : "middle",
        "text-anchor": upright ? "middle" : left ? "end" : "start",
        transform: turned ? `rotate(${degrees.toFixed(1)} ${nameX} ${nameY})` : null,
      },
      shortened(node.name),
    ),
    svg("title", null, `${node.name}: ${node.state}, ${delay(node)}`),
  );
}

const delay = (node) =>
  node.heartbeat_ms === null ? "delay not measured yet" : `the registry answers in ${node.heartbeat_ms} ms`;
const shortened = (name) => (name.length > CHARACTERS ? `${name.slice(0, CHARACTERS - 1)}…` : name);

function linkTable(nodes, links) {
  const counted = links.size > 0;
  const rows = nodes.map((node) => {
    const link = links.get(node.name);
    return {
      kind: node.state === "dead" ? "bad" : null,
      cells: [
        h("a", { href: `#/nodes/${encodeURIComponent(node.name)}` }, node.name),
        node.state,
        node.jobs.map((job) => [h("a", { href: `#/jobs/${job}` }, job), " "]),
        node.heartbeat_ms === null ? "–" : `${node.heartbeat_ms} ms`,
        ...(counted ? [bytes(link?.sent_bytes), bytes(link?.received_bytes)] : []),
      ],
    };
  });
  const heads = [
    "node",
    "state",
    "works on",
    "#registry answers in",
    ...(counted ? ["#sent", "#received"] : []),
  ];
  return table(heads, rows, "The nodes' links");
}
