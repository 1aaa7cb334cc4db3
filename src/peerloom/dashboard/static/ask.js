// A box to ask a model: values or a text, a file, or a drawing where it takes pictures.

import { code, empty, h, table } from "./dom.js";
import { brightness, followPointer, makeCanvas, pictureOf, wipe } from "./drawing.js";
import { link, metricOf } from "./jobs.js";
import { post } from "./posting.js";
import { bytes, figure, plural } from "./words.js";

export function askPage(seen, name) {
  const model = (seen.models ?? []).find((one) => one.digest === name || one.reference === name);
  if (!model) {
    return [
      h("h1", null, name.slice(0, 12)),
      empty(
        "It isn't among the newest models.",
        h("span", null, "Choose one of ", h("a", { href: "#/models" }, "the models"), "."),
      ),
    ];
  }
  return [
    h("h1", null, `Ask ${model.reference}`),
    h(
      "p",
      { class: "quiet" },
      `${model.task}, ${metricOf(model)}, ${bytes(model.size_bytes)}, made by `,
      link(model.job),
      ". ",
      wants(model.input),
    ),
    box(model),
  ];
}

function wants(input) {
  if (!input) return "It doesn't say what inputs it takes: write lists of numbers as JSON.";
  if (input.is_text) return `It takes text of up to ${input.shape[0]} tokens.`;
  return `An input is ${input.shape.join(" x ")} numbers from ${input.low} to ${input.high}.`;
}

// Stays as it is while the page is brought up to date; filled when it is first seen.
const box = (model) =>
  h("div", { class: "ask", "data-keep": "", "data-key": `ask-${model.digest}`, "data-ask": model.digest });

export function listenForQuestions(main, models) {
  new MutationObserver(() => {
    const place = main.querySelector("[data-ask]:empty");
    const model = place && models().find((one) => one.digest === place.dataset.ask);
    if (model) fill(place, model);
  }).observe(main, { childList: true, subtree: true });
}

function fill(place, model) {
  const picture = pictureOf(model.input);
  const isText = model.input?.is_text;
  const text = h("textarea", { name: "text", rows: 4, spellcheck: "false" });
  const file = h("input", { type: "file", accept: isText ? ".txt,.npy,.json" : ".npy,.json,.csv,.png" });
  const answer = h("div", { class: "answer", role: "status", "aria-live": "polite" });
  const canvas = picture && makeCanvas(picture);
  const form = h(
    "form",
    null,
    canvas && h("div", { class: "draw" }, h("h2", null, "Draw it"), canvas),
    h("label", null, isText ? "Text" : "Values: an input's numbers in each line, or JSON", text),
    h("label", null, "Or a file", file),
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "submit" }, "Ask"),
      h("button", { type: "reset" }, "Start anew"),
    ),
  );
  if (canvas)
    followPointer(canvas, picture, () => {
      file.value = "";
      text.value = JSON.stringify(inputOf(brightness(canvas, picture), picture, model.input));
      form.requestSubmit();
    });
  form.addEventListener("reset", () => {
    if (canvas) wipe(canvas);
    answer.replaceChildren();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    answer.replaceChildren(h("p", { class: "quiet" }, "Asking …"));
    const question = await questionOf(model, text, file.files[0]);
    showAnswer(answer, question.error ? question : await post("ask", question));
  });
  place.append(form, answer);
}

// One sample as the model takes it, from rows of brightness.
function inputOf(rows, picture, input) {
  const values = rows.map((row) =>
    row.map((light) => {
      const value = input.low + light * (input.high - input.low);
      return input.is_whole ? Math.round(value) : Number(value.toFixed(4));
    }),
  );
  if (!picture.channels) return [values];
  return [Array.from({ length: picture.channels }, () => values)];
}

async function questionOf(model, text, file) {
  if (!file) return { model: model.digest, text: text.value };
  if (file.size > 2_500_000) return { error: `${file.name} is too large for this page: use peerloom infer.` };
  let binary = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) binary += String.fromCharCode(byte);
  return { model: model.digest, file_name: file.name, file: btoa(binary) };
}

function showAnswer(place, found) {
  if (found.error) {
    place.replaceChildren(h("p", { class: "bad" }, found.error));
    return;
  }
  const several = found.answers.length > 1;
  const parts = found.answers.map((one, row) => oneAnswer(one, several ? row : null));
  const left = found.inputs - found.answers.length;
  const stages = found.mode === "split" ? ", each with a part of the model" : "";
  place.replaceChildren(
    h("h2", null, several ? "Answers" : "Answer"),
    ...parts,
    h(
      "p",
      { class: "quiet" },
      `Answered by ${found.nodes.join(", ")}${stages}, in ${figure(found.seconds * 1000, 0)} ms. `,
      left > 0 ? `There are ${plural(left, "more answer")}: ask with peerloom infer.` : "",
    ),
  );
}

function oneAnswer(one, row) {
  const name = row === null ? "" : `Input ${row}: `;
  if (!one.classes.length) {
    const numbers = one.outputs.map((value) => figure(value)).join("  ");
    return h("p", null, name, one.label ? h("strong", { class: "label" }, one.label) : code(numbers));
  }
  const rows = one.classes.slice(0, 10).map(({ name: label, probability }) => ({
    cells: [
      label,
      h("meter", { min: 0, max: 1, value: probability, "aria-label": `probability of ${label}` }),
      figure(probability, 4),
    ],
  }));
  return h(
    "div",
    null,
    h("p", null, name, h("strong", { class: "label" }, one.label)),
    table(["class", "", "#probability"], rows, "The most probable classes"),
  );
}
