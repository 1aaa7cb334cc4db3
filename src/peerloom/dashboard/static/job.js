// One job: its curves, its workers, and why it got these nodes.

import { chart } from "./charts.js";
import { empty, facts, h, table } from "./dom.js";
import { badge, progress } from "./jobs.js";
import { bytes, clock, duration, figure, plural, whole } from "./words.js";

export function jobPage(seen, id) {
  const job = seen.job;
  if (!job || (job.id && job.id !== id))
    return [h("h1", null, id), h("p", { class: "quiet" }, "Asking the trainer …")];
  if (job.trouble) {
    return [
      h("h1", null, id),
      empty(job.trouble, h("span", null, "Choose one of ", h("a", { href: "#/jobs" }, "the jobs"), ".")),
    ];
  }
  if (!job.id) return [h("h1", null, id), h("p", { class: "quiet" }, "Asking the trainer …")];
  return [
    h("h1", null, job.name || job.task, " ", badge(job.state)),
    h("p", { class: "quiet" }, `${job.id}: ${job.reason}`),
    jobFacts(job),
    ...charts(job),
    h("h2", null, "Workers"),
    workers(job),
    h("h2", null, "Why these nodes"),
    ...chosen(job),
    h("h2", null, "What happened"),
    happened(job),
  ];
}

function jobFacts(job) {
  const at = job.progress;
  const took = job.end && job.submitted ? (new Date(job.end) - new Date(job.submitted)) / 1000 : null;
  return facts([
    ["progress", at?.total_steps ? progress(at) : null],
    ["epoch", at ? `${at.epoch} of ${at.total_epochs ?? "?"}` : null],
    [at?.metric_name ?? "metric", at && at.metric !== null ? figure(at.metric) : null],
    ["speed", at?.samples_per_s ? `${whole(at.samples_per_s)} samples/s` : null],
    ["generation", job.generation || null],
    ["backend", job.backend],
    ["policy", job.policy],
    ["sent by one worker", job.bytes ? bytes(job.bytes) : null],
    ["carried by its network", job.carried_bytes === null ? null : bytes(job.carried_bytes)],
    ["checkpoint", job.checkpoint_step === null ? null : `at step ${whole(job.checkpoint_step)}`],
    [
      "ledger of samples",
      job.ledger ? h("span", { class: job.ledger.is_exact ? "good" : "bad" }, job.ledger.verdict) : null,
    ],
    ["evaluation", job.evaluation],
    [
      "audits",
      job.audits ? `${whole(job.audits.made)} made, ${job.audits.dismissals.length} nodes dismissed` : null,
    ],
    ["took", took === null ? null : duration(took)],
    ["model", job.model ? h("a", { href: "#/models" }, job.model.slice(0, 12)) : null],
  ]);
}

function charts(job) {
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
  const figures = [
    chart("loss", "Loss", job, [["loss", "loss", "--blue"]], job.steps),
    chart("speed", "Samples a second", job, [["samples_per_s", "samples/s", "--green"]], job.steps),
    chart(
      "time",
      "Time of a step",
      job,
      [
        ["compute_ms", "computing, ms", "--blue"],
        ["communication_ms", "communicating, ms", "--orange"],
      ],
      job.steps,
    ),
  ];
  if (job.epochs.length) {
    const columns = { step: job.epochs.map((one) => one.step), metric: job.epochs.map((one) => one.metric) };
    figures.splice(
      1,
      0,
      chart("metric", `Test ${metric}, by epoch`, job, [["metric", metric, "--purple"]], columns),
    );
  }
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

function workers(job) {
  if (!job.workers.length) return h("p", { class: "quiet" }, "It has no workers yet.");
  const rows = job.workers.map((worker) => ({
    kind: worker.ended && !job.ended ? "bad" : null,
    cells: [
      worker.id,
      h("a", { href: `#/nodes/${encodeURIComponent(worker.node_name)}` }, worker.node_name),
      worker.ended ? "–" : worker.rank,
      worker.ended ? "ended" : "works",
      worker.end_reason,
    ],
  }));
  return table(["worker", "node", "#rank", "state", "why it ended"], rows, "The job's workers");
}

function chosen(job) {
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

function happened(job) {
  if (!job.log.length) return h("p", { class: "quiet" }, "Nothing yet.");
  return table(
    ["when", "what"],
    job.log.map((one) => ({ cells: [clock(one.time), one.text] })),
    "What happened in the job, newest first",
  );
}
