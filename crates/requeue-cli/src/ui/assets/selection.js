// The bar of the chosen messages: export, redrive by a plan, and discard after an export.

import { send } from "/api.js";
import { announce, count, h } from "/dom.js";

const ROOT = "/api/dead-letters";

// Fills the element, which is hidden while nothing is chosen. `act` is called with an action that the
// user accepted, and the number of its selection.
export function selectionBar(root, queue, act) {
  let chosen;
  // The selection whose export was saved.
  let exported = null;
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
    exported = selection;
    discard.hidden = !queue.mayRedrive;
    announce(`${count(messages, "message")} exported. Nothing was deleted.`);
  });
  const plan = attempt(async () => {
    if (!rate.reportValidity()) return;
    const { selection, count: messages } = await select();
    const options = { rate: rate.value ? Number(rate.value) : null, freshBudget: fresh.checked };
    const lines = await send(`${ROOT}/selections/${selection}/plan`, options);
    const pace = options.rate ? `At most ${count(options.rate, "message")} in a second.` : "Without a limit of the rate.";
    const fate = options.freshBudget ? "Each starts with a fresh budget." : null;
    ask(root, {
      title: "Plan: nothing has changed yet",
      lines,
      notes: [pace, fate, "Requeue deletes a message here only after SQS confirmed its copy."].filter(Boolean),
      action: `Redrive ${count(messages, "message")}`,
      kind: "primary",
      accept: () => act("redrive", selection),
    });
  });

  const discard = h("button", {
    type: "button",
    class: "danger",
    hidden: true,
    click: () => ask(root, {
      title: "Discard the exported messages",
      lines: [`${status.textContent.replace(" chosen", "")} would be deleted from ${queue.queue.split(":").pop()}`],
      notes: ["Check the exported file first. Only it can bring the messages back, with requeue dlq import."],
      action: "Delete",
      kind: "danger",
      accept: () => act("discard", exported),
    }),
  }, "Discard");
  const controls = queue.mayRedrive
    ? [
      h("label", { for: "rate" }, "Redrive at ", rate, " a second"),
      h("label", {}, fresh, " fresh budget"),
      h("button", { type: "button", class: "primary", click: plan }, "Plan the redrive"),
    ]
    : [h("span", { class: "muted" }, "Read-only. The option --allow-redrive allows redrives.")];
  const bar = h("div", { class: "selection", hidden: true }, status, h("button", { type: "button", click: save }, "Export"), discard, controls, failed, link);
  root.append(bar);
  return {
    update(messages, selection) {
      chosen = selection;
      exported = null;
      discard.hidden = true;
      bar.hidden = messages === 0;
      const text = `${count(messages, "message")} chosen`;
      if (status.textContent !== text) status.textContent = text;
    },
  };
}

// Asks before the queue changes.
function ask(root, { title, lines, notes, action, kind, accept }) {
  const dialog = h("dialog", { "aria-labelledby": "question", close: () => dialog.remove() });
  const agree = () => {
    dialog.close();
    accept();
  };
  dialog.append(
    h("h2", { id: "question" }, title),
    h("ul", {}, lines.map((line) => h("li", {}, line))),
    ...notes.map((note) => h("p", { class: "muted" }, note)),
    h("div", { class: "row end" },
      h("button", { type: "button", autofocus: true, click: () => dialog.close() }, "Cancel"),
      h("button", { type: "button", class: kind, click: agree }, action)),
  );
  root.append(dialog);
  dialog.showModal();
}
