// The result of a redrive or a discard: its counts by class and failure, and the messages that stayed.

import { count, h, time } from "/dom.js";

const ACTIONS = { redrive: ["Redrive", "Redriven"], discard: ["Discard", "Deleted"], look: ["Look", "Received"] };

// So many messages with a reason are shown at once.
const OPEN = 20;

// The whole result of a job that has ended.
export function resultOf(job) {
  const { result, error } = job;
  if (!result) return [error ? problem(error) : null, ...notesOf(job)].filter(Boolean);
  const { notes } = job.progress;
  const lines = result.isStopped && notes.length === 0 ? [...result.lines, "The messages that stayed are visible again."] : result.lines;
  const told = h("div", { class: result.isComplete ? "done" : "warning" }, lines.map((line) => h("p", {}, line)));
  return [told, result.error ? problem(result.error) : null, ...notesOf(job), kinds(job), ...listed(result)].filter(Boolean);
}

// What a person has to know after the end of a job, as of messages that stay hidden.
export function notesOf({ progress }) {
  return progress.notes.map((text) => h("p", { class: "warning" }, text));
}

// The jobs before the latest one, each closed.
export function earlier(jobs) {
  if (jobs.length === 0) return null;
  return h("details", { class: "earlier" },
    h("summary", {}, `Earlier results (${jobs.length})`),
    h("p", { class: "muted" }, "The command keeps the last 20 results until it ends."),
    jobs.map((job) => {
      // Many messages would make the page slow, so a result is built when it is opened.
      const build = () => { if (details.children.length === 1) details.append(...resultOf(job)); };
      const details = h("details", { toggle: build }, h("summary", {}, title(job)));
      return details;
    }));
}

// What several jobs did with the messages of each class, together.
export function totals(jobs) {
  const ended = jobs.filter(({ result }) => result);
  if (ended.length < 2) return null;
  const sums = new Map();
  for (const { name, result } of ended) {
    for (const { class: of, done, copiedBefore } of result.kinds) {
      const sum = sums.get(of) ?? { redrive: 0, discard: 0 };
      sum[name] += done - copiedBefore;
      sums.set(of, sum);
    }
  }
  const number = (value) => h("td", { class: "number" }, value.toLocaleString("en"));
  const rows = [...sums].map(([of, { redrive, discard }]) => h("tr", {},
    h("td", {}, h("span", { class: `class ${of}` }, of)), number(redrive), number(discard)));
  const name = `The last ${ended.length} results by class`;
  return h("section", {}, h("h2", {}, name), table(name, [["Class"], ["Redriven", "number"], ["Deleted", "number"]], rows),
    h("p", { class: "muted" }, "A message that failed again and was redriven twice counts twice."));
}

export function title({ name, ended, result, error }) {
  const [action, done] = ACTIONS[name];
  const classes = new Map();
  for (const kind of (result?.kinds ?? []).filter((kind) => kind.done > 0)) classes.set(kind.class, (classes.get(kind.class) ?? 0) + kind.done);
  const by = classes.size > 0 ? ` (${[...classes].map(([name, number]) => `${number.toLocaleString("en")} ${name}`).join(", ")})` : "";
  const counts = result ? `${result.done.toLocaleString("en")} of ${count(result.done + result.left, "message")} ${done.toLowerCase()}${by}` : error ? "ended by an error" : "ended with a warning";
  return `${action}${result?.isStopped ? " stopped" : result?.error ? " broken off" : ""}, ${time(ended)} UTC: ${counts}`;
}

function kinds({ name, result }) {
  const heads = [["Class"], [ACTIONS[name][1], "number"], [`Not ${ACTIONS[name][1].toLowerCase()}`, "number"], ["Failure"]];
  const number = (value) => h("td", { class: "number" }, value.toLocaleString("en"));
  // SQS may have stored the copy of a message, and its response was lost.
  const doubt = (inDoubt) => inDoubt > 0 ? ` (${inDoubt.toLocaleString("en")} in doubt)` : "";
  const rows = result.kinds.map(({ class: of, code, done, left, inDoubt }) => h("tr", {},
    h("td", {}, h("span", { class: `class ${of}` }, of)), number(done), h("td", { class: "number" }, left.toLocaleString("en"), doubt(inDoubt)), h("td", { class: "text" }, failure(code))));
  return table("Result by class", heads, rows);
}

// Few messages are listed at once, and many are counted by their reasons first.
function listed({ listed: messages, notListed, reasons }) {
  if (messages.length === 0) return [];
  const all = messages.length + notListed;
  const heads = [["Message"], ["Class"], ["Failure"], ["Reason"]];
  const rows = messages.map(({ messageId, class: of, code, why }) => h("tr", {},
    h("td", { class: "mono" }, messageId), h("td", {}, h("span", { class: `class ${of}` }, of)), h("td", { class: "text" }, failure(code)), h("td", { class: "text" }, why)));
  const counted = reasons.map(({ why, count: number }) => h("p", {}, `${count(number, "message")}: ${why}`));
  return [
    ...(all > OPEN ? counted : []),
    h("details", { open: all <= OPEN },
      h("summary", {}, `${count(all, "message")} with a reason to check`),
      table("Messages with a reason", heads, rows, "long"),
      notListed > 0 ? h("p", { class: "muted" }, `${count(notListed, "further message")} not listed.`) : null),
  ];
}

function table(name, heads, rows, kind = "") {
  return h("div", { class: `scroll result ${kind}`, tabindex: kind ? "0" : null }, h("table", { "aria-label": name },
    h("thead", {}, h("tr", {}, heads.map(([head, kind]) => h("th", { scope: "col", class: kind }, head)))),
    h("tbody", {}, rows)));
}

const failure = (code) => code ?? h("span", { class: "muted" }, "none");

export function problem(text) {
  return h("p", { class: "problem", role: "alert" }, text);
}
