// The bar of the chosen messages: export, redrive by a plan, and discard.

import { send } from "/api.js";
import { count, h, kept, span } from "/dom.js";

// Fills the element, which is hidden while nothing is chosen. `act` is called with an action that the
// user accepted, and the number of its selection.
export function selectionBar(root, path, queue, act) {
  const name = queue.queue.split(":").pop();
  let chosen;
  let kinds;
  const saved = h("span", { class: "muted", role: "status" });
  const status = h("strong", { role: "status" });
  const rate = kept("redrive-rate", h("input", { type: "number", min: "1", max: "500", value: "10", id: "rate", keydown: (event) => { if (event.key === "Enter") plan(); } }));
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
  const select = () => send(`${path}/selections`, chosen);
  const save = attempt(async () => {
    const { selection, count: messages } = await select();
    link.href = `${path}/selections/${selection}/export`;
    link.click();
    saved.textContent = `Export of ${count(messages, "message")} begun: the browser saves ${name}.jsonl. Nothing was deleted.`;
  });
  const plan = attempt(async () => {
    if (!rate.reportValidity()) return;
    const { selection } = await select();
    const options = { rate: rate.value ? Number(rate.value) : null, freshBudget: fresh.checked };
    const { lines, count: messages } = await send(`${path}/selections/${selection}/plan`, options);
    const pace = options.rate ? `At most ${count(options.rate, "message")} in a second, so it takes at least ${span(Math.max(1, Math.ceil(messages / options.rate)) * 1000)}.` : "Without a limit of the rate.";
    const fate = options.freshBudget ? "Fresh budget: each message begins with all retries and all its time." : null;
    ask(root, {
      title: "Plan: nothing has changed yet",
      lines,
      chosen: kinds,
      notes: [pace, fate, "Requeue deletes a message here only after SQS confirmed its copy."].filter(Boolean),
      action: messages > 0 ? `Redrive ${count(messages, "message")}` : null,
      kind: "primary",
      accept: () => act("redrive", selection),
    });
  });

  const discard = attempt(async () => {
    const { selection, count: messages } = await select();
    ask(root, {
      title: "Discard the chosen messages",
      lines: [`${count(messages, "message")} would be deleted from ${name}`],
      chosen: kinds,
      notes: [
        "The command first writes the messages to a new file in the directory where it was started. The result names the file.",
        "The file, or an export, can bring the messages back, with requeue dlq import.",
      ],
      action: `Delete ${count(messages, "message")}`,
      kind: "danger",
      accept: () => act("discard", selection),
    });
  });
  const controls = queue.mayRedrive
    ? [
      h("button", { type: "button", class: "danger", click: discard }, "Discard"),
      h("label", { for: "rate" }, "Redrive at ", rate, " a second"),
      h("label", {}, fresh, " fresh budget"),
      h("button", { type: "button", class: "primary", click: plan }, "Plan the redrive"),
    ]
    : [h("span", { class: "muted" }, "Read-only. The option --allow-redrive allows redrives and discards.")];
  const bar = h("div", { class: "selection", hidden: true }, status, h("span", { class: "muted keys" }, "Esc leads here"), h("button", { type: "button", click: save }, "Export"), controls, saved, failed, link);
  root.append(bar);
  return {
    // `sorts` counts the chosen messages of each class and failure; a filter hides `hidden` of them.
    update(messages, selection, sorts, hidden) {
      chosen = selection;
      kinds = sorts;
      saved.textContent = "";
      bar.hidden = messages === 0;
      const text = `${count(messages, "message")} chosen${hidden ? `, ${hidden.toLocaleString("en")} of them hidden by the filter` : ""}`;
      if (status.textContent !== text) status.textContent = text;
    },
  };
}

// Asks before the queue changes.
function ask(root, { title, lines, chosen, notes, action, kind, accept }) {
  const dialog = h("dialog", { "aria-labelledby": "question", close: () => dialog.remove() });
  const agree = () => {
    dialog.close();
    accept();
  };
  dialog.append(
    h("h2", { id: "question" }, title),
    h("ul", {}, lines.map((line) => h("li", {}, line))),
    h("p", {}, "The chosen messages:"),
    h("ul", {}, chosen.map((line) => h("li", {}, line))),
    ...notes.map((note) => h("p", { class: "muted" }, note)),
    h("div", { class: "row end" },
      h("button", { type: "button", autofocus: true, click: () => dialog.close() }, "Cancel"),
      action ? h("button", { type: "button", class: kind, click: agree }, action) : null),
  );
  root.append(dialog);
  dialog.showModal();
}
