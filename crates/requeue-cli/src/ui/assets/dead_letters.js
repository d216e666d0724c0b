// The screen "Dead letters": groups, messages and their history.

import { read, send } from "/api.js";
import { bytes, fillDetails } from "/dead_letter.js";
import { ago, announce, count, h, kept, time } from "/dom.js";
import { follow } from "/job.js";
import { earlier, notesOf, problem, resultOf, title, totals } from "/result.js";
import { selectionBar } from "/selection.js";

const CAUSES_AT_ONCE = 100;
// The messages of a group come in such parts, each with two rows.
const MESSAGES_AT_ONCE = 100;
// Tenants below a cause, until the others are asked for.
const TENANTS_AT_ONCE = 5;
// How often the page asks for a job that another browser started.
const WATCH = 2000;
// The columns by which groups are told apart.
const KEYS = [["class", "Class"], ["reason", "Reason"], ["code", "Failure"], ["tenant", "Tenant"]];
const nameOf = (group) => [group.class, group.reason, group.code, group.tenant].filter(Boolean).join(", ");
const SOME_FIRST = "redrive or discard some of those below, then look again";
// Why a look did not reach messages, and what to do.
const MISSED = {
  fifoGroup: `SQS hands out at most the first ten messages of a FIFO group; ${SOME_FIRST}`,
  anotherReader: "another reader hides them, or a look, a redrive or a discard that could not make them visible again; look again when their visibility timeout is over, after 12 h at most",
  delayed: "their delay has not ended; look again after it",
  maxMessages: `a look ends at --max-messages; ${SOME_FIRST}`,
  timeUp: `a look ends before its first messages are visible again; ${SOME_FIRST}`,
  brokenOff: `a look ends at 256 MiB; ${SOME_FIRST}`,
  notReceived: "SQS counts more messages than it handed out, and its counts are approximate; look again in a minute",
};

export function deadLetters(root, page) {
  root.append(h("h1", {}, "Dead letters"));
  if (page.deadLetters.length === 0) {
    root.append(
      h("p", {}, "No dead-letter queue is open. Start the page with one:"),
      h("pre", {}, "requeue ui --queue orders-dlq\nrequeue ui --source-queue orders"),
    );
    return null;
  }
  const body = h("div");
  const queues = kept("dead-letter-queue", h("select", { "aria-label": "Queue", change: () => open() }, page.deadLetters.map((name, at) => h("option", { value: at }, name))));
  let screen;
  const open = () => {
    screen?.leave();
    body.replaceChildren();
    screen = new Screen(body, `/api/dead-letters/${queues.value}`);
    screen.load();
  };
  if (page.deadLetters.length > 1) root.append(h("label", {}, "Queue ", queues));
  root.append(body);
  open();
  return () => screen.leave();
}

class Screen {
  constructor(root, path) {
    this.path = path;
    this.facts = h("div", {}, h("p", { class: "muted" }, "Asking SQS about the queue."));
    this.work = h("div");
    this.result = h("div");
    this.list = h("div");
    this.messages = h("section", { "aria-label": "Messages", tabindex: "-1" });
    this.bar = h("div", { class: "dock" });
    root.append(this.facts, this.work, this.result, this.list, this.messages, this.bar);
    // Many rows lie between a choice and the bar.
    const reach = ({ key, target }) => {
      if (key === "Escape" && target.localName !== "select") this.bar.querySelector("button")?.focus();
    };
    for (const part of [this.list, this.messages]) part.addEventListener("keydown", reach);
    this.ends = () => {};
  }

  leave() {
    this.isLeft = true;
    clearTimeout(this.timer);
    this.ends();
  }

  // `ended` is the job that has just ended, of which the page has the result already.
  async load(ended = null) {
    try {
      const jobs = await read(`${this.path}/jobs`);
      if (this.isLeft) return;
      this.latest = jobs.latest;
      // The facts of the queue may wait for SQS.
      this.showResults(jobs.results);
      this.queue = await read(this.path);
    } catch (error) {
      if (ended && this.latest?.number !== ended.number) {
        this.latest = ended;
        this.showResults([ended]);
      }
      this.facts.replaceChildren(problem(error.message));
      // No job has this number, so the next response loads the screen anew.
      this.job = NaN;
      this.watch();
      return;
    }
    if (this.isLeft) return;
    this.showFacts();
    this.showGroups();
    this.job = this.latest?.number;
    if (this.latest?.isRunning) this.follow();
    else this.watch();
  }

  // Another browser may start a job.
  watch() {
    clearTimeout(this.timer);
    if (this.isLeft) return;
    this.timer = setTimeout(async () => {
      const job = await read(`${this.path}/job`).catch(() => undefined);
      if (this.isLeft || this.isFollowing) return;
      if (job === undefined || job?.number === this.job) this.watch();
      else if (job?.isRunning) this.follow();
      else this.load();
    }, WATCH);
  }

  showFacts() {
    const { queue, source, warnings, snapshot } = this.queue;
    const name = (arn) => h("span", { class: "mono", title: arn }, arn.split(":").pop());
    this.look = h("button", { type: "button", class: "primary", click: () => this.start("look") }, snapshot ? "Look again" : "Look at the queue");
    this.facts.replaceChildren(
      h("p", { class: "subtitle" }, name(queue), source ? [" of ", name(source)] : null),
      h("p", { class: "muted" }, "A look receives every message once, so its receive count grows by one. SQS hides the messages from other readers meanwhile. Afterwards they are visible again."),
      ...warnings.map((text) => h("p", { class: "warning" }, text)),
      h("p", {}, this.look),
    );
  }

  async start(action) {
    try {
      await send(`${this.path}/${action}`);
    } catch (error) {
      // The results stay: without the command nobody else has them.
      this.result.querySelector(":scope > .problem")?.remove();
      this.result.prepend(problem(error.message));
      return;
    }
    this.isMine = true;
    this.follow();
    this.work.firstChild.focus();
  }

  follow() {
    this.isFollowing = true;
    this.look.disabled = true;
    for (const part of [this.result, this.list, this.messages, this.bar]) part.replaceChildren();
    this.ends = follow(this.work, `${this.path}/job`, (job) => this.end(job));
  }

  async end(job) {
    this.isFollowing = false;
    const hadFocus = this.work.contains(document.activeElement);
    await this.load(job);
    if (this.isLeft || !job) return;
    announce(job.error ?? (job.result ? [...job.result.lines, job.result.error].filter(Boolean).join(". ") : count(this.queue.snapshot?.count ?? 0, "message")));
    if (!hadFocus) return;
    (this.result.querySelector(".latest") ?? this.list.querySelector("table") ?? this.look).focus({ preventScroll: true });
  }

  // The latest result is open, unless a look came after it.
  showResults(results) {
    const job = this.latest;
    const isLatest = results.length > 0 && results[0].number === job?.number;
    const latest = isLatest && (results[0].result || results[0].error) ? results[0] : null;
    this.result.replaceChildren();
    if (latest) {
      this.result.append(h("section", { class: "latest", tabindex: "-1", "aria-label": "Latest result" }, h("h2", {}, title(latest)), resultOf(latest)));
      if (latest.result) this.result.append(h("p", { class: "muted" }, "The queue has changed. Look again for the list of now."));
    }
    if (!latest && job && !job.isRunning) this.result.append(...notesOf(job));
    const others = earlier(isLatest ? results.slice(1) : results);
    this.result.append(...[totals(results), others].filter(Boolean));
  }

  showGroups() {
    const { snapshot } = this.queue;
    for (const part of [this.list, this.messages, this.bar]) part.replaceChildren();
    const isLost = !this.isMine && this.chosen?.groups.size + this.chosen?.messages.size > 0;
    this.isMine = false;
    this.chosen = { groups: new Set(), messages: new Map() };
    if (isLost) this.list.append(h("p", { class: "warning", role: "alert" }, "Another tab worked on the queue, so nothing is chosen here any longer."));
    if (!snapshot) return;
    const notes = this.latest?.progress.notes ?? [];
    if (!snapshot.isReleased && notes.length === 0) {
      this.list.append(h("p", { class: "warning" }, "Some messages stay hidden until their visibility timeout ends: SQS refused to make them visible."));
    }
    if (!snapshot.isComplete) {
      const lines = Object.entries(snapshot.notReached).map(([cause, missed]) => `About ${count(missed, "message")} not reached${snapshot.isStopped ? "" : `: ${MISSED[cause]}`}.`);
      if (lines.length === 0) lines.push("Not all messages were reached.");
      if (snapshot.isStopped) lines.unshift("The look was stopped.");
      this.list.append(...lines.map((line) => h("p", { class: "warning" }, line)));
    }
    if (snapshot.count === 0) {
      this.list.append(h("p", { class: "empty" }, snapshot.isStopped ? "No message was looked at." : "The queue has no visible message."));
      return;
    }
    this.groups = snapshot.groups.map((group, at) => ({ ...group, at }));
    this.groups.sort((one, other) => other.count - one.count);
    this.shown = CAUSES_AT_ONCE;
    const filters = KEYS.map(([key, name]) => this.filter(key, name)).filter(Boolean);
    this.body = h("tbody");
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all groups that are shown", change: () => this.chooseAll() });
    this.summary = h("p", { class: "muted" });
    this.more = h("p");
    // The causes with all their tenants.
    this.whole = new Set();
    this.hasTenants = this.groups.some((group) => group.tenant !== null);
    this.list.append(h("div", {},
      h("div", { class: "filters" }, filters),
      this.summary,
      h("div", { class: "scroll groups" }, h("table", { tabindex: "-1", "aria-label": "Groups of messages" }, this.head(), this.body)),
      this.more,
      this.groups.some((group) => group.reason === "unknown") ? h("p", { class: "muted" }, "The reason is unknown if REQUEUE_DEAD_LETTER was redrive, or if SQS moved the message before Requeue could note one: the function crashed, ran out of time or was throttled, or another consumer received it. Nor has a message one that another program sent here, or that is done and could not be deleted; a redrive does such a message again.") : null,
    ));
    this.selection = selectionBar(this.bar, this.path, this.queue, (action, selection) => this.start(`selections/${selection}/${action}`));
    this.fill();
  }

  head() {
    const keys = KEYS.filter(([key]) => key !== "tenant" || this.hasTenants);
    return h("thead", {}, h("tr", {},
      h("th", { class: "choice" }, this.all),
      h("th", { scope: "col", class: "number" }, "Messages"),
      keys.map(([, name]) => h("th", { scope: "col" }, name)),
      h("th", { scope: "col" }, "Dead-lettered, UTC"),
      h("th", { scope: "col" }, "Oldest"),
    ));
  }

  // A menu of the values of a column, if there are several.
  filter(key, name) {
    const values = [...new Set(this.groups.map((group) => group[key]))].sort();
    if (values.length < 2) return null;
    const select = h("select", { "aria-label": name, "data-key": key, change: () => { this.shown = CAUSES_AT_ONCE; this.fill(); } },
      h("option", { value: "" }, "all"),
      values.slice(0, 500).map((value) => h("option", { value: JSON.stringify(value) }, value ?? "none")),
    );
    return h("label", {}, name, kept(`groups-${key}`, select));
  }

  filtered() {
    const wanted = [...this.list.querySelectorAll("select")].filter((select) => select.value !== "");
    return this.groups.filter((group) => wanted.every((select) => JSON.stringify(group[select.dataset.key]) === select.value));
  }

  // The groups with the same class, reason and failure, the largest cause first.
  causes(groups) {
    const causes = new Map();
    for (const group of groups) {
      const key = JSON.stringify([group.class, group.reason, group.code]);
      if (!causes.has(key)) causes.set(key, { key, ...group, count: 0, groups: [] });
      const cause = causes.get(key);
      cause.groups.push(group);
      cause.count += group.count;
      const times = (key) => [cause[key], group[key]].filter((moment) => moment !== null).sort();
      [cause.oldest, cause.first, cause.last] = [times("oldest").at(0), times("first").at(0), times("last").at(-1)].map((moment) => moment ?? null);
    }
    return [...causes.values()].sort((one, other) => other.count - one.count);
  }

  fill() {
    const groups = this.filtered();
    const total = groups.reduce((all, group) => all + group.count, 0);
    const causes = this.causes(groups);
    const taken = time(this.queue.snapshot.taken);
    const tenants = new Set(groups.map((group) => group.tenant)).size;
    const of = this.hasTenants ? ` of ${count(tenants, "tenant")}` : "";
    this.summary.textContent = `${count(total, "message")}${of} with ${count(causes.length, "cause")}, looked at ${taken} UTC`;
    this.body.replaceChildren(...causes.slice(0, this.shown).flatMap((cause) => this.cause(cause)));
    const left = causes.length - this.shown;
    this.more.replaceChildren(...(left > 0 ? [h("button", { type: "button", click: () => { this.shown += CAUSES_AT_ONCE; this.fill(); } }, `Show ${Math.min(left, CAUSES_AT_ONCE)} more causes`)] : []));
    this.tell();
  }

  // A row for a cause, and one for each of its tenants below.
  cause(cause) {
    const { groups } = cause;
    const [only, ...others] = groups;
    const tenant = others.length === 0 ? only.tenant : count(groups.length, "tenant");
    const name = others.length === 0 ? nameOf(only) : nameOf({ ...cause, tenant: null });
    const row = h("tr", { class: "cause" },
      ...this.choice(cause, name),
      h("td", {}, h("span", { class: `class ${cause.class}` }, cause.class)),
      h("td", {}, cause.reason),
      h("td", { class: "text" }, cause.code ?? h("span", { class: "muted" }, "none")),
      this.hasTenants ? h("td", { class: "text", "data-name": "Tenant" }, tenant ?? h("span", { class: "muted" }, "none")) : null,
      ...this.times(cause));
    if (others.length === 0) return [row];
    const isOpen = this.whole.has(cause.key);
    const below = groups.slice(0, isOpen ? undefined : TENANTS_AT_ONCE).map((group) => h("tr", { class: "tenant" },
      ...this.choice({ ...group, groups: [group] }, nameOf(group)),
      h("td"), h("td"), h("td"), h("td", { class: "text", "data-name": "Tenant" }, group.tenant ?? "none"), ...this.times(group)));
    const left = groups.length - below.length;
    if (left > 0) {
      const more = h("button", { type: "button", class: "link", click: () => { this.whole.add(cause.key); this.fill(); } }, `${count(left, "more tenant")}`);
      below.push(h("tr", { class: "tenant" }, h("td", { class: "choice" }), h("td"), h("td"), h("td"), h("td"), h("td", { class: "text" }, more), h("td"), h("td")));
    }
    return [row, ...below];
  }

  // The box that chooses these groups, and the button that shows their messages.
  choice({ count: number, groups }, name) {
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Choose ${count(number, "message")}: ${name}`,
      change: () => {
        for (const { at } of groups) {
          if (box.checked) this.chosen.groups.add(at);
          else this.chosen.groups.delete(at);
        }
        this.tell();
      },
    });
    box.groups = groups;
    const show = h("button", { type: "button", class: "link", "aria-label": `Show ${count(number, "message")}: ${name}`, click: () => this.open(groups, name) }, number.toLocaleString("en"));
    return [h("td", { class: "choice" }, box), h("td", { class: "number" }, show)];
  }

  // The first and the last time at which one was dead-lettered, and the age of the oldest.
  times({ first, last, oldest }) {
    const [from, to] = [first, last].map((moment) => moment?.replace("T", " ").replace("Z", ""));
    const until = first === last ? "" : ` to ${first?.slice(0, 10) === last?.slice(0, 10) ? to?.slice(11) : to}`;
    return [
      h("td", { "data-name": "Dead-lettered, UTC" }, first ? from + until : h("span", { class: "muted" }, "unknown")),
      h("td", { "data-name": "Oldest" }, h("time", { datetime: oldest ?? "", title: oldest ?? "" }, ago(oldest))),
    ];
  }

  chooseAll() {
    for (const group of this.filtered()) {
      if (this.all.checked) this.chosen.groups.add(group.at);
      else this.chosen.groups.delete(group.at);
    }
    if (!this.all.checked) this.chosen.messages.clear();
    this.fill();
  }

  // Tells the selection bar how many messages are chosen.
  tell() {
    const { groups, messages } = this.chosen;
    const shown = new Set(this.filtered());
    const [kinds, single] = [new Map(), new Map()];
    for (const at of messages.values()) single.set(at, (single.get(at) ?? 0) + 1);
    let [all, hidden] = [0, 0];
    for (const group of this.groups) {
      const number = groups.has(group.at) ? group.count : single.get(group.at) ?? 0;
      if (number === 0) continue;
      const kind = `${group.class}, ${group.code ?? group.reason}`;
      kinds.set(kind, (kinds.get(kind) ?? 0) + number);
      all += number;
      if (!shown.has(group)) hidden += number;
    }
    this.all.checked = groups.size > 0 && [...shown].every((group) => groups.has(group.at));
    for (const box of this.body.querySelectorAll(".choice input")) {
      const number = box.groups.filter(({ at }) => groups.has(at)).length;
      box.checked = number === box.groups.length;
      box.indeterminate = number > 0 && !box.checked;
    }
    const lines = [...kinds].map(([kind, number]) => `${number.toLocaleString("en")} × ${kind}`);
    this.selection.update(all, {
      snapshot: this.queue.snapshot.number,
      groups: [...groups],
      messages: [...messages.keys()],
    }, lines, hidden);
    for (const box of this.messages.querySelectorAll("input[data-group]")) {
      const isWhole = groups.has(Number(box.dataset.group));
      box.disabled = isWhole;
      box.title = isWhole ? "Its whole group is chosen" : "";
      box.checked = isWhole || messages.has(Number(box.value));
    }
  }

  // Shows the messages of these groups, one group after the other.
  async open(groups, name) {
    const total = groups.reduce((all, group) => all + group.count, 0);
    const rows = h("tbody");
    const more = h("p");
    const close = h("button", { type: "button", click: () => { this.messages.replaceChildren(); this.list.querySelector("table").focus(); } }, "Close");
    this.messages.replaceChildren(
      h("div", { class: "row" }, h("h2", {}, count(total, "message")), close),
      h("p", { class: "muted" }, name),
      h("div", { class: "scroll" }, h("table", { "aria-label": "Messages of the group" },
        h("thead", {}, h("tr", {}, ["", "Message", "First sent", "Retries", "Receives", "Size"].map((name, at) => h("th", { scope: "col", class: at > 2 ? "number" : null }, name)))), rows)),
      more,
    );
    const load = async (from) => {
      const { number } = this.queue.snapshot;
      let [before, at] = [0, 0];
      while (before + groups[at].count <= from) before += groups[at++].count;
      const group = groups[at];
      let part;
      try {
        part = await read(`${this.path}/looks/${number}/groups/${group.at}/${from - before}`);
      } catch (error) {
        more.replaceChildren(problem(error.message));
        return;
      }
      rows.append(...part.flatMap((message) => this.message(group, message)));
      const seen = from + part.length;
      more.replaceChildren(...(seen < total ? [h("button", { type: "button", click: () => load(seen) }, `Show more of ${(total - seen).toLocaleString("en")}`)] : []));
      this.tell();
      // Groups of few messages fill no page.
      if (seen < total && from + part.length === before + group.count && rows.childElementCount < 2 * MESSAGES_AT_ONCE) await load(seen);
    };
    await load(0);
    this.messages.focus({ preventScroll: true });
    this.messages.scrollIntoView({ block: "start" });
  }

  message(group, message) {
    const box = h("input", {
      type: "checkbox",
      value: message.at,
      "data-group": group.at,
      "aria-label": `Choose message ${message.messageId}`,
      change: () => {
        if (box.checked) this.chosen.messages.set(message.at, group.at);
        else this.chosen.messages.delete(message.at);
        this.tell();
      },
    });
    const details = h("td", { colspan: "6" });
    const below = h("tr", { hidden: true, class: "details" }, details);
    const open = h("button", {
      type: "button",
      class: "link mono",
      "aria-expanded": "false",
      click: async () => {
        below.hidden = !below.hidden;
        open.setAttribute("aria-expanded", String(!below.hidden));
        if (!details.hasChildNodes()) await fillDetails(details, `${this.path}/looks/${this.queue.snapshot.number}/messages/${message.at}`, message.sizeBytes);
      },
    }, message.messageId);
    return [
      h("tr", {},
        h("td", { class: "choice" }, box),
        h("td", {}, open),
        h("td", {}, h("time", { title: message.firstSent ?? "" }, `${ago(message.firstSent)} ago`)),
        h("td", { class: "number" }, message.retryCount ?? "unknown"),
        h("td", { class: "number" }, message.receiveCount ?? "unknown"),
        h("td", { class: "number" }, bytes(message.sizeBytes)),
      ),
      below,
    ];
  }
}
