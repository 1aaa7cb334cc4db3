// The jobs.

import { code, empty, h, table } from "./dom.js";
import { clock, figure, spaced, whole } from "./words.js";

export const link = (job) => h("a", { href: `#/jobs/${job}` }, job);
export const metricOf = (one) =>
  one.metric === null || one.metric === undefined ? "–" : `${one.metric_name} ${figure(one.metric)}`;
// Of now: who waits for nodes, or has ended, makes no steps.
const speedNow = (job) => (job.state === "running" ? job.samples_per_s : null);
export const speedOf = (job) => `${whole(speedNow(job))} samples/s`;
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
      whole(speedNow(job)),
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
