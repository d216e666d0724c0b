// The drawings of the screen "Live". Each is a canvas; the same facts stand beside it as text.

import { CLASSES, SECONDS } from "/live_messages.js";

const PAST = 60_000;
const FUTURE = 15_000;

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    done: of("--done"), backlog: of("--accent"), line: of("--line"), muted: of("--muted"), ink: of("--ink"), dead: of("--danger"), warn: of("--warn"),
    "rate-limit": of("--class-rate-limit"), quota: of("--class-quota"), temporary: of("--class-temporary"), "non-retryable": of("--class-non-retryable"),
  };
}

function prepared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Calls by second and result: a bar for each second.
export function drawRates(canvas, messages, now, colour) {
  const { context, width, height } = prepared(canvas);
  const kinds = ["done", ...CLASSES];
  const last = Math.floor(now / 1000);
  const most = Math.max(1, ...messages.seconds.map((one) => kinds.reduce((sum, kind) => sum + one[kind], 0)));
  const step = width / SECONDS;
  for (const one of messages.seconds) {
    const left = width - (last - one.at + 1) * step;
    let bottom = height - 1;
    for (const kind of kinds) {
      const part = (one[kind] / most) * (height - 14);
      context.fillStyle = colour[kind];
      context.fillRect(left, bottom - part, Math.max(1, step - 1), part);
      bottom -= part;
    }
  }
  scale(context, width, height, `${most.toLocaleString("en")}/s`, colour);
  return most;
}

// The depth over the same time: each value counts until the next one.
export function drawBacklog(canvas, depths, now, colour) {
  const { context, width, height } = prepared(canvas);
  const most = Math.max(1, ...depths.map(([, depth]) => depth));
  const x = (at) => width - ((now - at) / (SECONDS * 1000)) * width;
  const y = (depth) => height - 1 - (depth / most) * (height - 14);
  context.fillStyle = colour.backlog;
  for (const [at, [from, depth]] of depths.entries()) {
    const to = depths[at + 1]?.[0] ?? now;
    if (to < now - SECONDS * 1000) continue;
    const left = Math.max(0, x(from));
    context.globalAlpha = 0.25;
    context.fillRect(left, y(depth), x(to) - left, height - y(depth));
    context.globalAlpha = 1;
    context.fillRect(left, y(depth) - 1, Math.max(1, x(to) - left), 2);
  }
  scale(context, width, height, most.toLocaleString("en"), colour);
  return most;
}

function scale(context, width, height, most, colour) {
  context.fillStyle = colour.line;
  context.fillRect(0, height - 1, width, 1);
  context.fillStyle = colour.muted;
  context.font = "11px system-ui, sans-serif";
  context.fillText(most, 2, 10);
}

// The life of one message: calls as bars, waits as lines, and its end as a mark.
export function drawLife(canvas, message, now, colour) {
  const { context, width, height } = prepared(canvas);
  const middle = height / 2;
  const x = (at) => ((at - (now - PAST)) / (PAST + FUTURE)) * width;
  const bar = (from, to, fill, size) => {
    const left = Math.max(0, x(from));
    const right = Math.min(width, x(to));
    if (right < 0 || left > width) return;
    context.fillStyle = fill;
    context.fillRect(left, middle - size / 2, Math.max(2, right - left), size);
  };
  context.fillStyle = colour.line;
  context.fillRect(x(now), 0, 1, height);
  let called = null;
  for (const event of message.events) {
    if (event.kind === "received") bar(event.at, event.at, colour.muted, 8);
    if (event.kind === "called") called = event.at;
    if (event.kind === "ended") {
      bar(event.at - (event.elapsedMs ?? 0), event.at, event.class ? colour[event.class] : event.reason ? colour.warn : colour.done, 12);
      called = null;
    }
    // A function tells of its calls only by the log.
    if ((event.kind === "requeued" || event.kind === "dead-lettered") && event.class) bar(event.at, event.at, colour[event.class], 12);
    if (event.kind === "deferred") bar(event.at, event.at + 1, colour.warn, 6);
    if (event.kind === "copied" && !event.reason && event.delay) bar(event.at, Math.max(event.at + event.delay * 1000, event.at), colour.line, 3);
    if (event.kind === "deleted" && message.state === "done") bar(event.at, event.at, colour.done, 8);
    if (event.kind === "dead") bar(event.at, event.at, colour.dead, 14);
  }
  if (called !== null) bar(called, now, colour.ink, 12);
  if (message.due !== null && message.due > now) {
    context.fillStyle = colour.muted;
    context.beginPath();
    context.arc(Math.min(width - 4, x(message.due)), middle, 3, 0, 7);
    context.fill();
  }
}
