// Jobs, one job with its curves, and the models that jobs left.

import { chart } from "./charts.js";
import { code, empty, facts, h, table } from "./dom.js";
import { bytes, clock, duration, figure, plural, spaced, whole } from "./words.js";

const link = (job) => h("a", { href: `#/jobs/${job}` }, job);
const metricOf = (one) => (one.metric === null || one.metric === undefined ? "–" : `${one.metric_name} ${figure(one.metric)}`);
const badge = (state) => h("span", { class: `state ${state}` }, spaced(state));

export function jobsPage(seen) {
  const jobs = seen.jobs ?? [];
  if (seen.jobs && !jobs.length) {
    return [h("h1", null, "Jobs"), empty("No job was submitted yet.", h("span", null, "Train a first model with ", code("peerloom train digits"), "."))];
  }
  const rows = jobs.map((job) => ({ cells: [
    link(job.id), job.name || job.task, badge(job.state), job.total_steps ? progress(job) : "–",
    metricOf(job), job.ended ? "–" : whole(job.samples_per_s), clock(job.submitted)] }));
  return [h("h1", null, "Jobs"), table(["job", "task", "state", "progress", "metric", "#samples/s", "submitted"], rows, "Jobs, newest first")];
}

function progress(job) {
  const label = `step ${whole(job.step)} of ${whole(job.total_steps)}`;
  return h("span", { class: "progress" }, h("progress", { max: job.total_steps, value: job.step, "aria-label": label }), " ", label);
}

export function jobPage(seen, id) {
  const job = seen.job;
  if (!job || (job.id && job.id !== id)) return [h("h1", null, id), h("p", { class: "quiet" }, "Asking the trainer …")];
  if (job.trouble) {
    return [h("h1", null, id), empty(job.trouble, h("span", null, "Choose one of ", h("a", { href: "#/jobs" }, "the jobs"), "."))];
  }
  if (!job.id) return [h("h1", null, id), h("p", { class: "quiet" }, "Asking the trainer …")];
  return [
    h("h1", null, job.name || job.task, " ", badge(job.state)),
    h("p", { class: "quiet" }, `${job.id}: ${job.reason}`),
    jobFacts(job), ...charts(job),
    h("h2", null, "Workers"), workers(job),
    h("h2", null, "Why these nodes"), ...chosen(job),
    h("h2", null, "What happened"), happened(job),
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
    ["ledger of samples", job.ledger ? h("span", { class: job.ledger.is_exact ? "good" : "bad" }, job.ledger.verdict) : null],
    ["evaluation", job.evaluation],
    ["audits", job.audits ? `${whole(job.audits.made)} made, ${job.audits.dismissals.length} nodes dismissed` : null],
    ["took", took === null ? null : duration(took)],
    ["model", job.model ? h("a", { href: "#/models" }, job.model.slice(0, 12)) : null],
  ]);
}

function charts(job) {
  if (!job.steps?.step.length) {
    return [h("p", { class: "quiet" }, job.ended ? "It ended before its first step." : "The curves begin with the first step.")];
  }
  const note = job.stride > 1 ? h("p", { class: "quiet" }, `Each point is a mean over ${job.stride} steps.`) : null;
  const metric = job.epochs[0]?.name ?? "metric";
  const figures = [
    chart("loss", "Loss", job, [["loss", "loss", "--blue"]], job.steps),
    chart("speed", "Samples a second", job, [["samples_per_s", "samples/s", "--green"]], job.steps),
    chart("time", "Time of a step", job, [["compute_ms", "computing, ms", "--blue"], ["communication_ms", "communicating, ms", "--orange"]], job.steps),
  ];
  if (job.epochs.length) {
    const columns = { step: job.epochs.map((one) => one.step), metric: job.epochs.map((one) => one.metric) };
    figures.splice(1, 0, chart("metric", `Test ${metric}, by epoch`, job, [["metric", metric, "--purple"]], columns));
  }
  return [h("h2", null, "Curves"), legend(job), h("div", { class: "charts" }, figures), note].filter(Boolean);
}

function legend(job) {
  const kinds = new Set(job.marks.map((mark) => mark.kind));
  const words = { lost: "a worker was lost", joined: "a node joined", accused: "a node was accused", dismissed: "a node was dismissed" };
  return h("p", { class: "legend" },
    h("span", null, job.generations.length === 1 ? "One generation of workers." : `Bands are the ${job.generations.length} generations of workers.`),
    Object.entries(words).filter(([kind]) => kinds.has(kind)).map(([kind, text]) => h("span", { class: `mark ${kind}` }, text)));
}

function workers(job) {
  if (!job.workers.length) return h("p", { class: "quiet" }, "It has no workers yet.");
  const rows = job.workers.map((worker) => ({
    kind: worker.ended && !job.ended ? "bad" : null,
    cells: [worker.id, h("a", { href: `#/nodes/${encodeURIComponent(worker.node_name)}` }, worker.node_name), worker.ended ? "–" : worker.rank,
      worker.ended ? "ended" : "works", worker.end_reason],
  }));
  return table(["worker", "node", "#rank", "state", "why it ended"], rows, "The job's workers");
}

function chosen(job) {
  if (!job.answers.length) return [h("p", { class: "quiet" }, "No node was asked yet.")];
  const rows = job.answers.map((answer) => ({
    kind: answer.accepted ? null : "bad",
    cells: [h("a", { href: `#/nodes/${encodeURIComponent(answer.name)}` }, answer.name), figure(answer.belief), answer.chosen_because,
      answer.accepted ? `gave ${plural(answer.accepted_slots, "slot")}` : "gave none", answer.reason, `${(answer.answer_s * 1000).toFixed(0)} ms`],
  }));
  const parts = [table(["asked", "#belief", "chosen because", "answer", "its reason", "#took"], rows, "The nodes that were asked, in order")];
  if (job.passed_over.length) {
    const others = job.passed_over.map((one) => ({ cells: [h("a", { href: `#/nodes/${encodeURIComponent(one.name)}` }, one.name), one.reason] }));
    parts.push(h("h3", null, `Passed over at ${clock(job.passed_over[0].time)}`), table(["not asked", "why"], others, "The nodes that weren't asked"));
  } else {
    parts.push(h("p", { class: "quiet" },
      "Who was passed over isn't known here: nobody was, or the selection was made while this window was closed; the selector remembers only its last one."));
  }
  return parts;
}

function happened(job) {
  if (!job.log.length) return h("p", { class: "quiet" }, "Nothing yet.");
  return table(["when", "what"], job.log.map((one) => ({ cells: [clock(one.time), one.text] })), "What happened in the job, newest first");
}

export function modelsPage(seen) {
  const models = seen.models ?? [];
  if (seen.models && !models.length) {
    return [h("h1", null, "Models"), empty("No job has left a model yet.", h("span", null, "Train one with ", code("peerloom train digits"), ": it is listed here once the job has succeeded."))];
  }
  const rows = models.map((model) => ({ cells: [
    model.reference, model.task, metricOf(model), model.began_with || "fresh parameters", link(model.job), bytes(model.size_bytes),
    h("code", { title: model.digest }, model.digest.slice(0, 12)), clock(model.created)] }));
  return [h("h1", null, "Models"),
    table(["model", "task", "metric", "began with", "job", "#size", "digest", "made"], rows, "Models, newest first"),
    h("p", { class: "quiet" }, "Ask one with ", code("peerloom infer"), ", or take it with ", code("peerloom models fetch"), ".")];
}
