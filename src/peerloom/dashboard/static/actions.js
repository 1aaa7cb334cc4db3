// What the dashboard may change, or show to few: each action is told in words first, and asks for the token.

import { h } from "./dom.js";
import { logTails } from "./log_tails.js";
import { post } from "./posting.js";

const WORDS = {
  drain: (node) => [
    `Drain ${node}?`,
    "It gets no new work; what runs there goes on. You can take it back into service.",
    "Drain it",
  ],
  undrain: (node) => [`Take ${node} back into service?`, "It may be given work again.", "Take it back"],
  cancel: (job) => [
    `Cancel ${job}?`,
    "Its workers end and their slots become free. Without a checkpoint its work is lost.",
    "Cancel the job",
  ],
  logs: (job) => [
    `What the workers of ${job} printed`,
    "The last 100 lines of each. Logs may hold what isn't for everybody who sees this page.",
    "Read them",
  ],
};
let token = ""; // of this page only: a reload forgets it

// A button for an action, where the dashboard has actions at all.
export function actionButton(seen, does, what, label) {
  if (!seen.window?.acts) return null;
  return h("button", { type: "button", class: "action", "data-act": does, "data-what": what }, label);
}

export function listenForActions(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (button) ask(root, button.dataset.act, button.dataset.what);
  });
}

function ask(root, does, what) {
  const [title, consequence, label] = WORDS[does](what);
  const answer = h("p", { role: "status" });
  const tails = h("div", { class: "tails" });
  const field = h("input", { type: "password", name: "token", required: true, autocomplete: "off" });
  field.value = token;
  const form = h(
    "form",
    null,
    h("h2", { id: "action-title" }, title),
    h("p", null, consequence),
    h("label", null, "Token, as the dashboard printed it", field),
    answer,
    tails,
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "submit" }, label),
      h("button", { type: "button", class: "close" }, "Close"),
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "action-title", class: does }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [button] = form.getElementsByTagName("button");
    button.disabled = true;
    const found = await post(does === "logs" ? "logs" : "act", { do: does, what, token: field.value });
    if (!found.error) token = field.value;
    button.disabled = Boolean(found.said); // what was done isn't done again, what was read may be
    answer.className = found.error ? "bad" : "good";
    answer.textContent = found.error ?? found.said ?? "";
    if (found.tails) tails.replaceChildren(...logTails(found));
  });
  form.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  root.append(dialog);
  dialog.showModal();
  (token ? form.querySelector("button") : field).focus();
}
