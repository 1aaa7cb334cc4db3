// One job: its curves, its workers, how they are synchronised, and why it got these nodes.

import { actionButton } from "./actions.js";
import { code, empty, facts, h, table } from "./dom.js";
import { charts } from "./job_charts.js";
import { badge, progress } from "./jobs.js";
import { chosen } from "./why.js";
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
    job.ended ? null : actionButton(seen, "cancel", job.id, "Cancel it …"),
    ...script(job),
    ...charts(job),
    h("h2", null, "Workers"),
    workers(job),
    logs(seen, job),
    ...synchronised(job),
    h("h2", null, "Why these nodes"),
    ...chosen(job),
    h("h2", null, "What happened"),
    happened(job),
  ].filter(Boolean);
}

function jobFacts(job) {
  const at = job.progress;
  const took = job.end && job.submitted ? (new Date(job.end) - new Date(job.submitted)) / 1000 : null;
  return facts([
    ["progress", at?.total_steps ? progress(at) : null],
    ["epoch", at ? `${at.epoch} of ${at.total_epochs ?? "?"}` : null],
    [at?.metric_name ?? "metric", at && at.metric !== null ? figure(at.metric) : null],
    ["speed", at?.samples_per_s && job.state === "running" ? `${whole(at.samples_per_s)} samples/s` : null],
    ["generation", job.generation || null],
    ["backend", job.backend],
    ["policy", job.policy],
    ["plan", job.plan],
    ["carried by its network", carried(job.carried)],
    ["began anew", job.begun_anew ? `${plural(job.begun_anew, "time")}, all lost before a checkpoint` : null],
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
    ["model", job.model ? h("a", { href: `#/models/${job.model}` }, job.model.slice(0, 12)) : null],
    ["files", job.files ? `peerloom jobs files ${job.id}` : null],
  ]);
}

function carried(traffic) {
  if (!traffic) return null;
  const sent = traffic.links.reduce((sum, link) => sum + link.sent_bytes, 0);
  const lag =
    traffic.lag_worst_s === null
      ? ""
      : `, ${traffic.backend} at worst ${(1000 * traffic.lag_worst_s).toFixed(1)} ms behind`;
  return `${bytes(sent)}${lag}`;
}

// What a training script has come to: its end, or what failed last and how often it was started again.
function script(job) {
  if (!job.is_script) return [];
  const parts = [h("h2", null, "Script")];
  const failed = job.script_run;
  if (!failed) {
    const ended =
      job.exit_status === null
        ? "None of its processes has failed."
        : `It ended with status ${job.exit_status}.`;
    parts.push(h("p", { class: "quiet" }, ended));
  }
  if (failed) {
    const how =
      failed.exit_status < 0
        ? `was killed by signal ${-failed.exit_status}`
        : `ended with status ${failed.exit_status}`;
    parts.push(
      h(
        "p",
        { class: "bad" },
        `Rank ${failed.rank} on ${failed.node_name} ${how}. For such ends it was started again ${plural(failed.restarts, "time")}.`,
      ),
      h(
        "pre",
        { class: "lines", tabindex: "0", "aria-label": "the end of its standard error" },
        failed.last_lines,
      ),
    );
  }
  return parts;
}

// The way its workers' gradients become their sum: what is used, why, and what it sends. Stages of a model send
// each other something else.
function synchronised(job) {
  const inUse = job.sync?.method || job.generations.at(-1)?.sync || job.asked_sync;
  if (!inUse && !job.traffic.length) return [];
  const isCut = /^(pipeline|sharded)/.test(job.plan);
  const method = (name) => (isCut ? job.plan : name || "all-reduce");
  const asked = job.sync ? ` (asked: ${job.asked_sync}): ${job.sync.reason}` : "";
  const parts = [
    h("h2", null, isCut ? "What its workers send each other" : "How its workers are synchronised"),
    h("p", null, h("strong", null, method(inUse)), asked),
  ];
  if (job.sync) {
    const took = (value) => (value === null ? null : `${figure(value, 1)} ms`);
    parts.push(
      facts([
        ["a step, as predicted", took(job.sync.predicted_ms)],
        ["a step, as measured", took(job.sync.measured_ms)],
        [
          "next best",
          job.sync.runner_up_method
            ? `${job.sync.runner_up_method}, ${took(job.sync.runner_up_ms) ?? "?"}`
            : null,
        ],
        ["changed", job.sync.changes ? plural(job.sync.changes, "time") : "never"],
      ]),
    );
  }
  const rows = job.traffic.map((one) => ({
    cells: [method(one.method), whole(one.steps), bytes(one.bytes), bytes(one.bytes / one.steps)],
  }));
  if (rows.length)
    parts.push(table(["method", "#steps", "#sent by one worker", "#in a step"], rows, "Bytes by method"));
  return parts;
}

function workers(job) {
  if (!job.workers.length) return h("p", { class: "quiet" }, "It has no workers yet.");
  const staged = job.workers.some((worker) => worker.stage);
  const parts = job.divisions.at(-1)?.parts ?? {};
  const divided = Object.keys(parts).length > 1;
  const works = (worker) => job.ended || !worker.ended; // of a job that ended: until then
  const isMember = (worker) => worker.generation > 0 && worker.generation === job.generation;
  const share = (worker) =>
    works(worker) && worker.id in parts ? `${(100 * parts[worker.id]).toFixed(1)} %` : "–";
  const rows = job.workers.map((worker) => ({
    kind: worker.ended && !job.ended ? "bad" : null,
    cells: [
      worker.id,
      h("a", { href: `#/nodes/${encodeURIComponent(worker.node_name)}` }, worker.node_name),
      worker.ended || !isMember(worker) ? "–" : worker.rank,
      ...(divided ? [share(worker)] : []),
      ...(staged ? [worker.stage && works(worker) ? `${worker.stage.number}: ${worker.holds}` : "–"] : []),
      worker.ended ? "ended" : isMember(worker) ? "works" : "spare, or not yet ready",
      worker.end_reason,
    ],
  }));
  const more = [...(divided ? ["#share"] : []), ...(staged ? ["stage"] : [])];
  return table(["worker", "node", "#rank", ...more, "state", "why it ended"], rows, "The job's workers");
}

// Who has the token reads the ends of their logs here; else it is said how.
function logs(seen, job) {
  if (!job.workers.length) return null;
  const button = actionButton(seen, "logs", job.id, "What they printed …");
  return button ?? h("p", { class: "quiet" }, "What they printed: ", code(`peerloom jobs logs ${job.id}`));
}

function happened(job) {
  if (!job.log.length) return h("p", { class: "quiet" }, "Nothing yet.");
  return table(
    ["when", "what"],
    job.log.map((one) => ({ cells: [clock(one.time), one.text] })),
    "What happened in the job, newest first",
  );
}
