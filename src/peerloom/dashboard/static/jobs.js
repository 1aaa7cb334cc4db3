// The jobs, and the models that they left.

import { code, empty, h, table } from "./dom.js";
import { bytes, clock, figure, spaced, whole } from "./words.js";

const link = (job) => h("a", { href: `#/jobs/${job}` }, job);
const metricOf = (one) =>
  one.metric === null || one.metric === undefined ? "–" : `${one.metric_name} ${figure(one.metric)}`;
export const badge = (state) => h("span", { class: `state ${state}` }, spaced(state));

export function jobsPage(seen) {
  const jobs = seen.jobs ?? [];
  if (seen.jobs && !jobs.length) {
    return [
      h("h1", null, "Jobs"),
      empty(
        "No job was submitted yet.",
        h("span", null, "Train a first model with ", code("peerloom train digits"), "."),
      ),
    ];
  }
  const rows = jobs.map((job) => ({
    cells: [
      link(job.id),
      job.name || job.task,
      badge(job.state),
      job.total_steps ? progress(job) : "–",
      metricOf(job),
      job.ended ? "–" : whole(job.samples_per_s),
      clock(job.submitted),
    ],
  }));
  return [
    h("h1", null, "Jobs"),
    table(
      ["job", "task", "state", "progress", "metric", "#samples/s", "submitted"],
      rows,
      "Jobs, newest first",
    ),
  ];
}

export function progress(job) {
  const label = `step ${whole(job.step)} of ${whole(job.total_steps)}`;
  return h(
    "span",
    { class: "progress" },
    h("progress", { max: job.total_steps, value: job.step, "aria-label": label }),
    " ",
    label,
  );
}

export function modelsPage(seen) {
  const models = seen.models ?? [];
  if (seen.models && !models.length) {
    return [
      h("h1", null, "Models"),
      empty(
        "No job has left a model yet.",
        h(
          "span",
          null,
          "Train one with ",
          code("peerloom train digits"),
          ": it is listed here once the job has succeeded.",
        ),
      ),
    ];
  }
  const rows = models.map((model) => ({
    cells: [
      model.reference,
      model.task,
      metricOf(model),
      model.began_with || "fresh parameters",
      link(model.job),
      bytes(model.size_bytes),
      h("code", { title: model.digest }, model.digest.slice(0, 12)),
      clock(model.created),
    ],
  }));
  return [
    h("h1", null, "Models"),
    table(
      ["model", "task", "metric", "began with", "job", "#size", "digest", "made"],
      rows,
      "Models, newest first",
    ),
    h(
      "p",
      { class: "quiet" },
      "Ask one with ",
      code("peerloom infer"),
      ", or take it with ",
      code("peerloom models get"),
      ".",
    ),
  ];
}
