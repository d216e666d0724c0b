// The screen "Live": the events of the worker or the function that runs in the same process.

import { read } from "/api.js";
import { announce, count, h, keep, kept, span, time } from "/dom.js";
import { colours, drawBacklog, drawLife, drawRates } from "/live_chart.js";
import { CLASSES, Messages, SECONDS } from "/live_messages.js";

// The least time between two drawings, and the most when nothing happens: countdowns go on.
const DRAW = 100;
const TICK = 500;
// The least time between two depths of the backlog.
const SAMPLE = 1000;
const ROW = 30;
const STATES = ["waiting", "received", "in a call", "failed", "waits for a retry", "deferred", "left to SQS", "done", "dead-lettered", "dead"];
const KINDS = {
  sent: "sent", received: "received", called: "called", ended: "call ended", requeued: "to retry", deferred: "deferred",
  released: "left to SQS", "dead-lettered": "dead-lettered", copied: "copy sent", hidden: "hidden", kept: "kept", deleted: "deleted", dead: "in the dead-letter queue",
};

const seconds = (milliseconds) => span(Math.max(1000, Math.ceil(milliseconds / 1000) * 1000));
const brief = (reason) => (reason ?? "").replace(/^status /, "");

export function live(root, page) {
  root.append(h("h1", {}, "Live"));
  if (!page.live) {
    root.append(h("p", {}, "Nothing runs in this process. Start a worker or a function with the page:"));
    root.append(h("pre", {}, "requeue work --queue orders --ui\nrequeue serve --ui -- cargo run\nrequeue ui --function orders"));
    return undefined;
  }
  const screen = new Screen(root);
  screen.connect();
  return () => screen.leave();
}

class Screen {
  constructor(root) {
    this.messages = new Messages();
    this.pending = [];
    this.state = null;
    this.run = null;
    this.next = 0;
    this.breaks = 0;
    // The time since which the command does not respond.
    this.lost = null;
    this.drawn = 0;
    this.selected = null;
    this.colour = colours();
    this.rows = [];
    // Times and depths.
    this.depths = [];
    this.build(root);
    this.ticks = setInterval(() => this.schedule(), TICK);
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.onTheme = () => {
      this.colour = colours();
    };
    this.theme.addEventListener("change", this.onTheme);
  }

  build(root) {
    const panel = (title, ...children) => h("section", {}, h("h2", {}, title), ...children);
    this.intro = h("p", { class: "muted" }, "Waiting for the first event.");
    this.partial = h("p", { class: "muted", hidden: true }, "Partial: the log of the function comes seconds later, and has no line for a message that completed. The counts are of its metrics, since ten minutes before the start of this page.");
    this.banner = h("div", { "aria-live": "polite" });
    this.troubles = h("div", { "aria-live": "polite" });
    this.figures = h("dl", { class: "figures" });
    this.deadLettered = h("p", { class: "muted", hidden: true });
    this.pauses = h("div");
    this.retries = h("div");
    this.failures = h("div");
    this.chart = h("canvas", { class: "rates", role: "img", "aria-label": "Calls by second" });
    this.sums = h("div");
    this.curve = h("canvas", { class: "rates", role: "img", "aria-label": "Backlog" });
    this.depth = h("p", { class: "muted" });
    this.backlog = h("section", { hidden: true }, h("h2", {}, "Backlog: messages in the queue"), this.curve, this.depth);
    this.stateFilter = kept("live-state", h("select", { change: () => this.schedule() }, h("option", { value: "" }, "All"), STATES.map((state) => h("option", {}, state))));
    this.idFilter = kept("live-id", h("input", { type: "text", size: 12, spellcheck: "false", autocomplete: "off", input: () => this.schedule() }));
    this.hold = h("input", { type: "checkbox" });
    this.shown = h("span", { class: "shown" });
    this.all = h("div", { class: "all" });
    this.lives = h("div", { class: "lives", tabindex: "0", role: "group", "aria-label": "Messages", scroll: () => this.schedule() }, this.all);
    this.details = h("div");
    root.append(
      this.intro, this.partial, this.banner, this.troubles, this.figures, this.deadLettered,
      h("div", { class: "charts" }, panel(`Calls, last ${SECONDS / 60} minutes`, this.chart, this.sums), this.backlog),
      h("div", { class: "live-columns" },
        panel("Pauses and circuits", this.pauses),
        panel("Next retries", this.retries)),
      panel("Messages",
        h("div", { class: "live-filters" },
          h("label", {}, "State", this.stateFilter), h("label", {}, "Id", this.idFilter),
          h("label", {}, this.hold, "Hold the picture"), this.shown),
        h("div", { class: "lives-head muted", "aria-hidden": "true" }, h("span", {}, "message"), h("span", {}, "state"), h("span", { class: "attempt" }), h("span", { class: "past" }, "last minute"), h("span", {}, "next 15 s")),
        this.lives, this.details),
      panel("Last failures", this.failures),
    );
  }

  connect() {
    const from = this.run ? `?run=${this.run}&next=${this.next}` : "";
    this.source = new EventSource(`/api/live/events${from}`);
    this.source.onmessage = ({ data }) => {
      this.breaks = 0;
      this.lost = null;
      for (const id of ["lost", "restarted"]) document.getElementById(id).hidden = true;
      this.take(JSON.parse(data));
    };
    this.source.onerror = () => {
      this.source.close();
      this.breaks += 1;
      // Its response tells whether the server is gone, or was restarted.
      if (this.breaks > 1) {
        this.lost ??= time(Date.now());
        read("/api/page").catch(() => {});
        this.schedule();
      }
      this.retry = setTimeout(() => this.connect(), Math.min(5000, 500 * 2 ** this.breaks));
    };
  }

  take(data) {
    if (data.state) {
      this.state = data.state;
      const now = Date.now();
      // The server tells the time that is left.
      for (const pause of data.state.pauses ?? []) pause.until = now + pause.restMs;
      this.sample(now);
      this.messages.keepsFailures = typeof data.state.counts?.left === "number";
    } else {
      // Another start of the command has other events.
      if (this.run !== null && this.run !== data.run) {
        const { keepsFailures } = this.messages;
        this.messages = Object.assign(new Messages(), { keepsFailures });
        this.depths = [];
      }
      if (this.run === null) this.restore(data.run);
      this.run = data.run;
      this.next = data.next;
      this.messages.missed += data.missed;
      this.pending.push(...data.events);
    }
    this.schedule();
  }

  // The depth is known only while this page is open, so a reload keeps it.
  sample(now) {
    const { waiting, delayed, inFlight } = this.state;
    if (waiting === null || now - (this.depths.at(-1)?.[0] ?? 0) < SAMPLE) return;
    this.depths.push([now, waiting + (delayed ?? 0) + (inFlight ?? 0)]);
    while (this.depths[0][0] < now - SECONDS * 1000) this.depths.shift();
    if (this.run) keep("live-depths", JSON.stringify([this.run, this.depths]));
  }

  restore(run) {
    const [of, depths] = JSON.parse(sessionStorage.getItem("live-depths") ?? "[]");
    if (of === run) this.depths = [...depths, ...this.depths];
  }

  schedule() {
    this.frame ??= requestAnimationFrame((now) => this.draw(now));
  }

  draw(now) {
    this.frame = null;
    for (const event of this.pending) this.messages.add(event);
    this.pending = [];
    if (now - this.drawn < DRAW) {
      this.later ??= setTimeout(() => {
        this.later = null;
        this.schedule();
      }, DRAW);
      return;
    }
    this.drawn = now;
    const clock = Date.now();
    this.drawState(clock);
    if (this.hold.checked) return;
    this.drawSums(clock);
    this.drawRetries(clock);
    this.drawFailures();
    this.drawMessages(clock);
  }

  drawState(clock) {
    const { state, messages } = this;
    if (!state) return;
    const target = state.target ? ` to ${state.target}` : "";
    this.intro.textContent = `${state.hasEnded ? "Ended: " : state.isEnding ? "Ending: " : ""}${state.queue}${target}`;
    this.partial.hidden = state.source !== "log";
    const lost = messages.missed > 0 ? [`${count(messages.missed, "older event")} left out: they are no longer kept`] : [];
    const old = this.lost && !state.hasEnded ? [`Since ${this.lost} UTC the command does not respond: this is its last state. If it was ended at once, SQS delivers the messages in flight again.`] : [];
    replace(this.troubles, [...old, ...state.troubles, ...lost].map((text) => h("p", { class: "trouble" }, text)));
    this.deadLettered.hidden = !state.deadLettered;
    this.deadLettered.textContent = state.deadLettered ?? "";
    const { counts } = state;
    const isReport = typeof counts?.left === "number";
    const figures = [
      ["waiting", state.waiting], ["delayed", state.delayed], ["in flight", state.inFlight], ["calls a second", state.rate],
      ["done", counts?.done], ["not confirmed as deleted", counts?.notDeleted || null], ...(isReport ? [["failures left to SQS", counts.left], ["on their last receive", counts.dead]] : [["retried", counts?.retried], ["receives without a call", counts?.deferred], ["dead-lettered", counts?.dead]]), ["dead", state.dead],
    ];
    replace(this.figures, figures.filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value.toLocaleString("en")))));
    this.drawPauses(clock);
    this.drawBanner();
  }

  // An open circuit: of which scope, why, and until when, as far as it is known.
  drawBanner() {
    const { pauses, hasEnded } = this.state;
    const { circuitOpen } = this.messages;
    let texts = [];
    if (hasEnded) texts = [];
    else if (pauses) {
      texts = pauses.filter(({ why }) => why === "circuit-open").slice(0, 3).map(({ scope, reason, restMs, until }) =>
        `Circuit open for ${scope === "-" ? "all messages" : `the scope ${scope}`}${reason ? `: ${reason}` : ""}. ${restMs > 0 ? `No message probes before ${time(until)} UTC. After that, one` : "A message"} probes as soon as SQS delivers one that may.`);
    } else if (circuitOpen) {
      texts = [`Circuit open since ${time(circuitOpen.at)} UTC${circuitOpen.reason ? `: ${circuitOpen.reason}` : ""}. The log does not tell its scope and its end.`];
    }
    replace(this.banner, texts.map((text) => h("p", { class: "banner" }, text)));
  }

  drawPauses(clock) {
    const { pauses, hasEnded } = this.state;
    if (hasEnded) {
      replace(this.pauses, [h("p", { class: "muted" }, "The worker has ended.")]);
      return;
    }
    if (!pauses) {
      replace(this.pauses, this.pausedByLog(clock).map((text) => h("p", {}, text)));
      return;
    }
    if (pauses.length === 0) {
      replace(this.pauses, [h("p", { class: "muted" }, "None: each message may call.")]);
      return;
    }
    const rows = pauses.map(({ scope, why, restMs, reason }) => h("tr", {},
      h("td", {}, why === "paused" ? "paused" : "circuit open"),
      h("td", { class: "mono" }, scope === "-" ? "all" : scope),
      h("td", { class: "number" }, restMs > 0 ? `in ${seconds(restMs)}` : "now"),
      h("td", {}, brief(reason))));
    replace(this.pauses, [table(["pause or circuit", "scope", "earliest probe", "last failure"], rows, [2])]);
  }

  // A function keeps its pauses to itself, so only its log tells of them.
  pausedByLog(clock) {
    if (this.state.source === "queue") return ["Not known: no function of this command handles the messages."];
    const { circuitOpen, deferral } = this.messages;
    const texts = circuitOpen ? [`Circuit open since ${time(circuitOpen.at)} UTC.`] : [];
    const [since, delay] = deferral ? [clock - deferral.at, (deferral.delay ?? 0) * 1000] : [Infinity, 0];
    const due = since < delay ? ` It is due in ${seconds(delay - since)}.` : "";
    if (since < Math.max(delay, 10_000)) texts.push(`A message was deferred ${span(since)} ago: ${deferral.reason ?? "no reason given"}.${due}`);
    return texts.length > 0 ? texts : ["The log of the function tells of none."];
  }

  drawSums(clock) {
    const { messages, colour, depths } = this;
    const most = drawRates(this.chart, messages, clock, colour);
    const [minute, ten] = [messages.sums(clock, 60), messages.sums(clock, 10)];
    const parts = ["done", ...CLASSES].map((name) => h("span", {},
      h("span", { class: `legend of-${name}` }), `${name} ${minute[name].toLocaleString("en")} in 1 min, ${ten[name].toLocaleString("en")} in 10 s`));
    this.chart.setAttribute("aria-label", `Calls by second, at most ${most} in a second`);
    replace(this.sums, [h("p", { class: "key muted" }, parts)]);
    this.backlog.hidden = depths.length === 0;
    if (depths.length === 0) return;
    const deepest = drawBacklog(this.curve, depths, clock, colour);
    set(this.depth, `now ${depths.at(-1)[1].toLocaleString("en")}, at most ${deepest.toLocaleString("en")} since ${time(depths[0][0])} UTC`);
    this.curve.setAttribute("aria-label", `Backlog: ${this.depth.textContent}`);
  }

  drawRetries(clock) {
    if (this.state?.hasEnded) {
      replace(this.retries, [h("p", { class: "muted" }, "The worker has ended.")]);
      return;
    }
    const { counts, first } = this.messages.retries(clock);
    if (counts.length === 0) {
      replace(this.retries, [h("p", { class: "muted" }, "No message waits for a time.")]);
      return;
    }
    const rows = counts.map(([label, number]) => h("tr", {}, h("td", {}, label), h("td", { class: "number" }, number.toLocaleString("en"))));
    replace(this.retries, [h("p", {}, first === Infinity ? "All of them are due." : `The next one in ${seconds(first - clock)}.`), table(["due", "messages"], rows, [1])]);
  }

  drawFailures() {
    const failures = this.messages.failures.slice(0, 12);
    if (failures.length === 0) {
      replace(this.failures, [h("p", { class: "muted" }, "None yet.")]);
      return;
    }
    const rows = failures.map(({ id, at, attempt, class: name, reason, delay, kind }) => h("tr", {},
      h("td", {}, h("time", { datetime: new Date(at).toISOString() }, time(at))),
      h("td", { class: "mono", title: id }, id.slice(0, 8)),
      h("td", { class: "number" }, attempt),
      h("td", {}, h("span", { class: `class ${name}` }, name)),
      h("td", { class: "text" }, reason),
      h("td", {}, delay !== undefined ? `retry in ${delay} s` : kind === "dead-lettered" || name === "non-retryable" ? "dead-lettered" : "")));
    replace(this.failures, [h("div", { class: "scroll failures" }, table(["time (UTC)", "message", "attempt", "class", "reason", "then"], rows, [2]))]);
  }

  // Only the rows in sight exist.
  drawMessages(clock) {
    const list = this.messages.list(this.stateFilter.value, this.idFilter.value.trim());
    const total = this.messages.byId.size;
    this.shown.textContent = list.length === total ? count(total, "message") : `${list.length.toLocaleString("en")} of ${count(total, "message")}`;
    this.all.style.height = `${list.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.lives.scrollTop / ROW) - 2);
    const visible = list.slice(first, first + Math.ceil(this.lives.clientHeight / ROW) + 4);
    while (this.rows.length < visible.length) this.rows.push(this.row());
    for (const [at, row] of this.rows.entries()) {
      const message = visible[at];
      row.element.hidden = !message;
      if (message) this.fill(row, message, first + at, clock);
    }
    this.drawDetails(clock);
  }

  row() {
    const parts = { id: h("span", { class: "mono" }), state: h("span"), attempt: h("span", { class: "attempt muted" }), life: h("canvas", { "aria-hidden": "true" }) };
    const element = h("button", { class: "life", type: "button", click: () => this.select(element.dataset.id) }, parts.id, parts.state, parts.attempt, parts.life);
    this.all.append(element);
    return { element, ...parts };
  }

  fill(row, message, at, clock) {
    const { element } = row;
    const left = message.due === null ? "" : message.due > clock ? `${message.state === "deferred" ? "," : " in"} ${seconds(message.due - clock)}` : message.state === "waiting" ? "" : ", due";
    element.style.top = `${at * ROW}px`;
    element.dataset.id = message.id;
    element.setAttribute("aria-pressed", message.id === this.selected);
    set(row.id, message.id.slice(0, 8));
    set(row.state, (message.state === "waits for a retry" ? "retry" : message.state) + left);
    row.state.className = `state is-${message.state.replace(" ", "-")}`;
    set(row.attempt, message.attempt > 0 ? `attempt ${message.attempt}` : "");
    drawLife(row.life, message, clock, this.colour);
  }

  select(id) {
    this.selected = this.selected === id ? null : id;
    this.listed = -1;
    this.isNew = true;
    const message = this.messages.byId.get(this.selected);
    if (message) announce(`Message ${id.slice(0, 8)}: ${message.state}`);
    this.schedule();
  }

  drawDetails() {
    const message = this.messages.byId.get(this.selected);
    if (!message) {
      replace(this.details, []);
      return;
    }
    if (this.listed === message.last) return;
    this.listed = message.last;
    const steps = message.events.map((event) => h("li", {},
      h("time", { datetime: new Date(event.at).toISOString() }, new Date(event.at).toISOString().slice(11, 23)),
      h("span", {}, KINDS[event.kind] ?? event.kind),
      h("span", {}, [
        event.attempt !== undefined ? `attempt ${event.attempt}` : "", event.maxReceives ? `receive ${event.receiveCount} of ${event.maxReceives}` : "", event.class ?? "", event.reason ?? "",
        event.delay !== undefined ? `delay ${event.delay} s` : "", event.elapsedMs !== undefined ? `${event.elapsedMs} ms` : "",
        event.scope ? `scope ${event.scope}` : "",
      ].filter((text) => text).join(", "))));
    replace(this.details, [h("p", { class: "mono" }, message.id), h("ol", { class: "steps" }, steps)]);
    if (this.isNew) this.details.scrollIntoView({ block: "nearest" });
    this.isNew = false;
  }

  leave() {
    clearInterval(this.ticks);
    clearTimeout(this.retry);
    clearTimeout(this.later);
    cancelAnimationFrame(this.frame);
    this.theme.removeEventListener("change", this.onTheme);
    this.source.close();
  }
}

// `numbers` are the columns that are aligned to the right.
function table(heads, rows, numbers = []) {
  const head = (text, at) => h("th", { scope: "col", class: numbers.includes(at) ? "number" : null }, text);
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map(head))), h("tbody", {}, rows));
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Leaves the elements in place if they would be the same, so that a selection and a screen reader
// are not disturbed.
function replace(element, children) {
  const isSame = element.childElementCount === children.length && children.every((child, at) => child.isEqualNode(element.children[at]));
  if (!isSame) element.replaceChildren(...children);
}
