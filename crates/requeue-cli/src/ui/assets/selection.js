// The bar of the chosen messages: export, plan and redrive.

import { send } from "/api.js";
import { announce, count, h } from "/dom.js";

const ROOT = "/api/dead-letters";

// Fills the element, which is hidden while nothing is chosen. `redrive` is called with the number of
// a selection whose plan the user accepted.
export function selectionBar(root, queue, redrive) {
  let chosen;
  const status = h("strong", { role: "status" });
  const rate = h("input", { type: "number", min: "1", max: "500", value: "10", id: "rate" });
  const fresh = h("input", { type: "checkbox" });
  const failed = h("p", { class: "problem", role: "alert", hidden: true });
  const link = h("a", { hidden: true, download: "" });

  const attempt = (action) => async () => {
    failed.hidden = true;
    try {
      await action();
    } catch (error) {
      failed.textContent = error.message;
      failed.hidden = false;
    }
  };
  const select = () => send(`${ROOT}/selections`, chosen);
  const save = attempt(async () => {
    const { selection, count: messages } = await select();
    link.href = `${ROOT}/selections/${selection}/export`;
    link.click();
    announce(`${count(messages, "message")} exported. Nothing was deleted.`);
  });
  const plan = attempt(async () => {
    if (!rate.reportValidity()) return;
    const { selection, count: messages } = await select();
    const options = { rate: rate.value ? Number(rate.value) : null, freshBudget: fresh.checked };
    const lines = await send(`${ROOT}/selections/${selection}/plan`, options);
    const pace = options.rate ? `At most ${count(options.rate, "message")} in a second.` : "Without a limit of the rate.";
    const fate = options.freshBudget ? "Each starts with a fresh budget." : null;
    confirm(root, { messages, lines, notes: [pace, fate].filter(Boolean), accept: () => redrive(selection) });
  });

  const controls = queue.mayRedrive
    ? [
      h("label", { for: "rate" }, "Redrive at ", rate, " a second"),
      h("label", {}, fresh, " fresh budget"),
      h("button", { type: "button", class: "primary", click: plan }, "Plan the redrive"),
    ]
    : [h("span", { class: "muted" }, "Read-only. The option --allow-redrive allows redrives.")];
  const bar = h("div", { class: "selection", hidden: true }, status, h("button", { type: "button", click: save }, "Export"), controls, failed, link);
  root.append(bar);
  return {
    update(messages, selection) {
      chosen = selection;
      bar.hidden = messages === 0;
      const text = `${count(messages, "message")} chosen`;
      if (status.textContent !== text) status.textContent = text;
    },
  };
}

// Shows the plan, and asks.
function confirm(root, { messages, lines, notes, accept }) {
  const dialog = h("dialog", { "aria-labelledby": "plan", close: () => dialog.remove() });
  const act = () => {
    dialog.close();
    accept();
  };
  dialog.append(
    h("h2", { id: "plan" }, "Plan: nothing has changed yet"),
    h("ul", {}, lines.map((line) => h("li", {}, line))),
    notes.map((note) => h("p", { class: "muted" }, note)).reduce((all, note) => (all.append(note), all), h("div")),
    h("p", { class: "muted" }, "Requeue deletes a message here only after SQS confirmed its copy."),
    h("div", { class: "row end" },
      h("button", { type: "button", autofocus: true, click: () => dialog.close() }, "Cancel"),
      h("button", { type: "button", class: "primary", click: act }, `Redrive ${count(messages, "message")}`)),
  );
  root.append(dialog);
  dialog.showModal();
}
