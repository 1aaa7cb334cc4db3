// Why a job got its nodes: who was asked and why, what each answered, who was passed over and why.

import { h, table } from "./dom.js";
import { figure, plural, whole } from "./words.js";

export function chosen(job) {
  if (!job.answers.length) return [h("p", { class: "quiet" }, "No node was asked yet.")];
  const rows = job.answers.map((answer) => ({
    kind: answer.accepted ? null : "bad",
    cells: [
      h("a", { href: `#/nodes/${encodeURIComponent(answer.name)}` }, answer.name),
      figure(answer.belief),
      answer.chosen_because,
      answer.accepted ? `gave ${plural(answer.accepted_slots, "slot")}` : "gave none",
      answer.reason,
      `${(answer.answer_s * 1000).toFixed(0)} ms`,
    ],
  }));
  const parts = [
    table(
      ["asked", "#belief", "chosen because", "answer", "its reason", "#took"],
      rows,
      "The nodes that were asked, in order",
    ),
  ];
  if (job.passed_over.length) {
    const others = job.passed_over.map((one) => ({
      cells: [whole(one.count), one.reason, named(one)],
    }));
    parts.push(
      h("h3", null, `Passed over: ${job.choice} were named`),
      table(["#nodes", "why they weren't asked", "for example"], others, "The nodes that weren't asked"),
    );
  }
  return parts;
}

function named(group) {
  const links = group.examples.flatMap((name) => [
    h("a", { href: `#/nodes/${encodeURIComponent(name)}` }, name),
    " ",
  ]);
  return h("span", null, links, group.count > group.examples.length ? "…" : null);
}
