// An emulated network, by its own counters: what passed each host's link, and whether it keeps up.

import { facts, h, table } from "./dom.js";
import { bytes, figure, whole } from "./words.js";

const ms = (value) => {
  if (value === null || value === undefined) return null;
  return `${value >= 0.1 || !value ? figure(value, 1) : value.toPrecision(1)} ms`;
};

export function testbedPart(testbed) {
  if (!testbed) return [];
  const head = h("h2", null, testbed.name ? `Testbed ${testbed.name}` : "Testbed");
  const trouble = testbed.trouble ? h("p", { class: "bad" }, testbed.trouble) : null;
  if (!testbed.hosts) return [head, trouble].filter(Boolean);
  const behind = testbed.lag_worst_ms > testbed.lag_bound_ms;
  const rows = testbed.hosts.map((host) => ({
    kind: host.up ? null : "bad",
    cells: [
      host.name,
      whole(host.node),
      host.up ? "up" : "down",
      ms(host.delay_ms) ?? "–",
      host.rate,
      bytes(host.sent_bytes),
      bytes(host.received_bytes),
      whole(host.dropped_packets),
    ],
  }));
  return [
    head,
    trouble,
    facts([
      ["emulated by", `${testbed.backend}, ${testbed.medium}`],
      ["up for", `${whole(testbed.wall_s)} s`],
      ["behind the clock", ms(testbed.lag_ms)],
      [
        "at worst",
        testbed.lag_worst_ms === null
          ? null
          : h(
              "span",
              { class: behind ? "bad" : "good" },
              `${ms(testbed.lag_worst_ms)}: ${behind ? "NOT faithful" : "faithful"}, the bound is ${ms(testbed.lag_bound_ms)}`,
            ),
      ],
      ["processor time", testbed.cpu_s === null ? null : `${figure(testbed.cpu_s, 1)} s`],
    ]),
    table(
      ["host", "#node", "link", "#delay", "#rate", "#sent", "#received", "#dropped"],
      rows,
      "Links of the testbed",
    ),
  ].filter(Boolean);
}
