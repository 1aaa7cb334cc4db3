// What the nodes and the trainer keep, and where it lies.

import { code, empty, h, table } from "./dom.js";
import { link } from "./jobs.js";
import { awayNow } from "./told.js";
import { bytes, plural, spaced } from "./words.js";

const NAMED = 6;

export function artifactsPage(seen) {
  const found = seen.artifacts;
  const head = h("h1", null, "Artifacts");
  const trouble = found?.trouble ? h("p", { class: "bad" }, found.trouble) : null;
  if (!found?.rows) return [head, trouble ?? h("p", { class: "quiet" }, "Asking all nodes …")];
  if (!found.rows.length) {
    return [
      head,
      empty(
        "Nobody keeps an artifact yet.",
        h(
          "span",
          null,
          "Data and code that jobs use, and the models they leave, lie on the nodes. Give some with ",
          code("peerloom artifacts put"),
          ".",
        ),
      ),
    ];
  }
  const rows = found.rows.map((one) => ({
    cells: [
      one.name || "–",
      spaced(one.kind),
      bytes(one.size_bytes),
      places(one.holders),
      places(one.pinned_by),
      one.job_id ? link(one.job_id) : one.maker,
      one.used_by.length ? one.used_by.map((job) => [link(job), " "]) : "",
      h("code", { title: one.digest }, one.digest.slice(0, 12)),
    ],
  }));
  return [
    head,
    trouble,
    awayNow(seen).includes("trainer")
      ? h("p", { class: "as-of" }, "The trainer is away: what it keeps isn't listed.")
      : null,
    h(
      "p",
      { class: "quiet" },
      `${plural(rows.length, "artifact")}, asked of all who answer, every few seconds.`,
    ),
    table(
      ["name", "kind", "#size", "lies on", "pinned on", "made by", "used by", "digest"],
      rows,
      "Artifacts and where they lie",
    ),
  ].filter(Boolean);
}

function places(names) {
  const shown = names.slice(0, NAMED).flatMap((name) => [place(name), " "]);
  const more = names.length - NAMED;
  return h("span", { title: names.join(", ") }, shown, more > 0 ? `and ${more} more` : null);
}

const place = (name) =>
  name === "trainer" ? name : h("a", { href: `#/nodes/${encodeURIComponent(name)}` }, name);
