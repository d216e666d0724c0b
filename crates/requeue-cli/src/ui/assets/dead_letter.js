// One message of a dead-letter queue: its history, and its body.

import { read } from "/api.js";
import { h, span } from "/dom.js";
import { problem } from "/result.js";

// Fills the element with the facts of the message at this path, and a way to its body.
export async function fillDetails(root, path, sizeBytes) {
  let facts;
  try {
    facts = await read(path);
  } catch (error) {
    root.replaceChildren(problem(error.message));
    return;
  }
  const body = h("div");
  const reveal = h("button", { type: "button", click: () => showBody(body, path) }, "Show the body");
  root.replaceChildren(h("div", { class: "history" }, known(facts)), body);
  body.append(h("p", {}, reveal, " ", h("a", { href: `${path}/download`, download: "" }, `Download (${bytes(sizeBytes)})`)));
}

// The attempts of a message, as far as its body tells them.
function known(facts) {
  const retries = facts.retries.map(([name, number]) => `${number} × ${name}`).join(", ");
  const rows = [
    ["Class", facts.class],
    ["Reason", facts.detail ? `${facts.reason}: ${facts.detail}` : facts.reason],
    ["Retries", facts.retryCount === null ? null : `${facts.retryCount}${retries ? `: ${retries}` : ""}`],
    ["Last delay", facts.lastDelaySeconds === null ? null : span(facts.lastDelaySeconds * 1000)],
    ["Deferrals", facts.deferrals || null],
    ["Redrives", facts.redrives || null],
    ["First sent", facts.firstSent],
    ["First received", facts.firstReceived],
    ["Dead-lettered", facts.failedAt],
    ["Receives", facts.receiveCount],
    ["Moved by SQS from", facts.movedFrom],
    ["Claims to come from", facts.claimedSource],
    ["Original id", facts.originalMessageId],
    ["Message group", facts.groupId],
    ["Attributes", facts.attributeNames.join(", ") || null],
  ];
  const shown = rows.filter(([, value]) => value !== null && value !== undefined);
  const list = h("dl", {}, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
  return facts.isOfLaterVersion ? [list, h("p", { class: "warning" }, "A later version of Requeue wrote this message, so its history cannot be read.")] : list;
}

async function showBody(root, path) {
  let body;
  try {
    body = await read(`${path}/body`);
  } catch (error) {
    root.append(problem(error.message));
    return;
  }
  const notes = [];
  if (body.isCut) notes.push(`The first ${bytes(new Blob([body.text]).size)} of ${bytes(body.bytes)}; the download has all of it.`);
  if (body.hasHidden) notes.push("A name such as [U+202E] stands for a control character or a character that changes the direction of text. The download has the character itself.");
  root.replaceChildren(
    notes.map((note) => h("p", { class: "muted" }, note)).reduce((all, note) => (all.append(note), all), h("div")),
    h("pre", { tabindex: "0", class: "body", "aria-label": "Body" }, body.text),
    h("p", {}, h("a", { href: `${path}/download`, download: "" }, "Download the body")),
  );
  root.querySelector("pre").focus({ preventScroll: true });
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  return number < 1048576 ? `${(number / 1024).toFixed(1)} KiB` : `${(number / 1048576).toFixed(1)} MiB`;
}
