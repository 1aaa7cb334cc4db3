// What workers printed: their words, as text and nothing else.

import { h } from "./dom.js";
import { plural } from "./words.js";

export function logTails(found) {
  const parts = found.tails.map((tail) => [
    h("h3", null, `${tail.node} ${tail.worker}`, h("span", { class: "quiet" }, ` ${plural(tail.lines.length, "line")}`)),
    h("pre", { class: "lines", tabindex: "0", "aria-label": `what ${tail.worker} printed` }, tail.lines.join("\n")),
  ]);
  if (!parts.length) parts.push([h("p", null, "They printed nothing, or nothing of it is kept.")]);
  if (found.more)
    parts.push([h("p", { class: "quiet" }, "There is more: peerloom jobs logs tells all that is kept.")]);
  return parts.flat();
}
