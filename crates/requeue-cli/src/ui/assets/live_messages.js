// The messages of the screen "Live", by their events. It knows no element.

// Older messages are forgotten, those that are over first.
const MAX_MESSAGES = 5000;
const MAX_EVENTS = 60;
const MAX_FAILURES = 50;
// Seconds of which the rates are kept.
export const SECONDS = 300;

export const CLASSES = ["rate-limit", "quota", "temporary", "non-retryable"];
const OVER = new Set(["done", "dead-lettered", "dead"]);

// An empty second of the rates: calls that succeeded, and those that failed by class.
const second = (at) => ({ at, done: 0, "rate-limit": 0, quota: 0, temporary: 0, "non-retryable": 0 });

export class Messages {
  constructor() {
    this.byId = new Map();
    this.failures = [];
    this.seconds = [];
    // The event that opened the circuit of the function.
    this.circuitOpen = null;
    this.deferral = null;
    this.missed = 0;
    this.received = 0;
    // In the mode report SQS delivers each failed message again.
    this.keepsFailures = false;
  }

  add(event) {
    this.received += 1;
    if (event.kind === "circuit-opened") this.circuitOpen = event;
    if (event.kind === "circuit-closed") this.circuitOpen = null;
    const id = event.originalMessageId ?? event.messageId;
    if (!id) return;
    let message = this.byId.get(id);
    if (!message) {
      message = { id, first: event.at, state: "waiting", attempt: 0, due: null, copy: null, replaced: null, failed: 0, events: [] };
      this.byId.set(id, message);
      if (this.byId.size > MAX_MESSAGES) this.forget();
    }
    message.last = event.at;
    message.events.push(event);
    if (message.events.length > MAX_EVENTS) message.events.shift();
    this.apply(message, event);
  }

  // Its copies are one message. `copy` is the id of the one that was received last, until it is
  // replaced by the next one. The log of a batch may come after the next copy.
  apply(message, event) {
    const isCurrent = event.messageId === message.copy;
    const isDeadLettered = message.state === "dead-lettered" || message.state === "dead";
    switch (event.kind) {
      case "sent":
        this.wait(message, "waiting", event);
        break;
      case "received":
        message.copy = event.messageId;
        message.attempt = Math.max(message.attempt, event.attempt ?? 1);
        if (!isDeadLettered) this.set(message, "received");
        break;
      case "called":
        // It was redriven, so its attempts are new ones. In the mode report no attempt has a number.
        if (isDeadLettered || this.keepsFailures) message.failed = 0;
        message.copy = event.messageId;
        message.attempt = event.attempt ?? message.attempt;
        this.set(message, "in a call");
        break;
      case "ended":
        if (event.class) this.fail(message, event);
        else if (!event.reason) this.done(message, event);
        break;
      case "requeued":
      case "deferred":
        if (event.kind === "requeued") this.fail(message, event);
        else this.deferral = event;
        if (isDeadLettered && event.kind === "requeued") break;
        if (isCurrent) this.wait(message, event.kind === "requeued" ? "waits for a retry" : "deferred", event);
        // Its copy is sent already, with its own delay.
        else if (message.copy === null && event.messageId === message.replaced && event.kind === "deferred") message.state = "deferred";
        break;
      case "dead-lettered":
        if (event.class) this.fail(message, event);
        if (this.keepsFailures && !(event.receiveCount >= event.maxReceives)) this.set(message, "left to SQS");
        else this.deadLetter(message);
        break;
      case "copied":
        message.replaced = message.copy ?? message.replaced;
        message.copy = null;
        if (event.reason) this.deadLetter(message);
        else if (!isDeadLettered) this.wait(message, "waits for a retry", event);
        break;
      case "released":
      case "kept":
        // Its copy was not sent.
        if (event.class) this.fail(message, event);
        // On an earlier receive, of which the events may be left out.
        if (/^(annotated|not-retried)/.test(event.reason ?? "")) this.deadLetter(message);
        else if (isCurrent && !isDeadLettered) this.set(message, "left to SQS");
        break;
      case "deleted":
        if (isCurrent && !isDeadLettered && message.state !== "done") this.done(message, event);
        break;
      case "dead":
        this.set(message, "dead");
        message.reason = event.reason ?? message.reason;
        break;
    }
  }

  set(message, state) {
    message.state = state;
    message.due = null;
  }

  wait(message, state, event) {
    message.state = state;
    message.due = event.at + (event.delay ?? 0) * 1000;
  }

  deadLetter(message) {
    if (message.state !== "dead") this.set(message, "dead-lettered");
    const last = this.failures.find(({ id }) => id === message.id);
    if (last) last.kind = "dead-lettered";
  }

  done(message, event) {
    this.set(message, "done");
    this.count(event.at, "done");
  }

  // A failure is told by the call, and again by the log of the batch with the delay.
  fail(message, event) {
    const attempt = event.attempt ?? message.attempt;
    message.class = event.class;
    message.reason = event.reason;
    const known = message.failed === attempt ? this.failures.find((other) => other.id === message.id) : null;
    if (message.failed === attempt) {
      if (known) known.delay = event.delay ?? known.delay;
      return;
    }
    message.failed = attempt;
    if (event.kind === "ended") this.set(message, "failed");
    this.count(event.at, event.class);
    this.failures.unshift({ id: message.id, at: event.at, attempt, class: event.class, reason: event.reason, delay: event.delay, kind: event.kind });
    if (this.failures.length > MAX_FAILURES) this.failures.pop();
  }

  count(at, what) {
    const start = Math.floor(at / 1000);
    let last = this.seconds.at(-1);
    if (!last || start > last.at) {
      last = second(start);
      this.seconds.push(last);
      while (this.seconds[0].at < start - SECONDS) this.seconds.shift();
    }
    if (last[what] !== undefined) last[what] += 1;
  }

  forget() {
    for (const [id, message] of this.byId) {
      if (OVER.has(message.state)) {
        this.byId.delete(id);
        return;
      }
    }
    this.byId.delete(this.byId.keys().next().value);
  }

  // The newest first.
  list(state, text) {
    const found = [];
    for (const message of this.byId.values()) {
      if (state && message.state !== state) continue;
      if (text && !message.id.includes(text)) continue;
      found.push(message);
    }
    return found.reverse();
  }

  // The sums of the last seconds.
  sums(now, seconds) {
    const sums = second(0);
    for (const one of this.seconds) {
      if (one.at * 1000 < now - seconds * 1000) continue;
      for (const name of ["done", ...CLASSES]) sums[name] += one[name];
    }
    return sums;
  }

  // The waiting messages by the time that is left: [label, count] each, and the first time.
  retries(now) {
    const steps = [[5, "in 5 s"], [30, "in 30 s"], [60, "in 1 min"], [300, "in 5 min"], [900, "in 15 min"], [Infinity, "later"]];
    const counts = steps.map(([, label]) => [label, 0]);
    let first = Infinity;
    let overdue = 0;
    for (const { due, state } of this.byId.values()) {
      if (due !== null && due < now && state !== "waiting") overdue += 1;
      if (due === null || due < now) continue;
      first = Math.min(first, due);
      counts[steps.findIndex(([limit]) => due - now <= limit * 1000)][1] += 1;
    }
    return { counts: [["due", overdue], ...counts].filter(([, count]) => count > 0), first };
  }
}
