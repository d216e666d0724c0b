// Follows a job of the server: its progress, a button that stops it, and its end.

import { read, send } from "/api.js";
import { announce, h, span, time } from "/dom.js";

const INTERVAL = 250;
// The rate is that of the last seconds, and from less time it is a guess.
const MEASURED = 15_000;
const LEAST = 2_000;
// A rate of one message in a second moves each second.
const SILENT = 5_000;

// Shows the job at this path in the element, and calls `ended` with it. Returns a function that ends
// the watch; the job goes on.
export function follow(root, path, ended) {
  const step = h("p", { class: "step" });
  const bar = h("progress", { "aria-label": "Progress" });
  const counts = h("span", { class: "muted" });
  const stop = h("button", {
    type: "button",
    click: async () => {
      if (stop.ariaDisabled === "true") return;
      // Without `disabled`, which would take the focus away.
      stop.ariaDisabled = "true";
      try {
        await send(`${path}/stop`);
      } catch {
        stop.ariaDisabled = "false";
      }
    },
  }, "Stop");
  const fate = h("p", { class: "warning", role: "alert", hidden: true });
  root.replaceChildren(h("section", { class: "job", tabindex: "-1", "aria-label": "Running job" }, step, h("div", { class: "bar" }, bar, counts, stop), fate));
  announce("The work has begun.");
  let timer;
  let isWatched = true;
  const pace = new Pace();
  // The last counts, and the time since which there are none.
  let told = "";
  let lost = null;
  // What an end of the command leaves at once, by its last response.
  let ifKilled = null;
  const look = async () => {
    let job;
    try {
      job = await read(path);
    } catch {
      stop.hidden = true;
      if (ifKilled) fate.textContent = `If the command has ended: ${ifKilled}. Look again after that.`;
      fate.hidden = !ifKilled;
      counts.textContent = [told, `since ${lost ??= time(Date.now())} UTC the server does not respond`].filter(Boolean).join("; ");
      if (isWatched) timer = setTimeout(look, 4 * INTERVAL);
      return;
    }
    if (!isWatched) return;
    ifKilled = job?.ifKilled;
    stop.hidden = false;
    fate.hidden = true;
    if (!job || !job.isRunning) {
      isWatched = false;
      ended(job);
      root.replaceChildren();
      return;
    }
    const { done, total, failed, unit, step: name } = job.progress;
    stop.ariaDisabled = String(job.isStopping);
    step.textContent = job.isStopping ? `${name}: stopping` : name;
    if (total) {
      bar.max = Math.max(total, done);
      bar.value = done;
    } else {
      bar.removeAttribute("value");
    }
    const of = total ? ` of ${Math.max(total, done).toLocaleString("en")}` : "";
    const rate = pace.of(job.progress);
    const pacing = job.sqsSilentMs ? [`no response from SQS for ${span(job.sqsSilentMs)}`] : [...rate, pace.silence()];
    const parts = unit ? [`${done.toLocaleString("en")}${of} ${unit}`, failed ? `${failed} failed` : null, ...pacing] : pacing;
    lost = null;
    told = parts.filter(Boolean).join(", ");
    counts.textContent = told;
    timer = setTimeout(look, INTERVAL);
  };
  look();
  return () => {
    isWatched = false;
    clearTimeout(timer);
  };
}

// The rate of a job, and the time that is left.
class Pace {
  constructor() {
    this.seen = [];
  }

  of({ done, total, unit, step }) {
    // A step has a pace of its own.
    if (this.step !== step) this.seen = [];
    this.step = step;
    const now = performance.now();
    if (this.last !== `${step} ${done}`) {
      // The time without a change is no part of the rate after it.
      if (now - this.moved > SILENT) this.seen = [];
      this.moved = now;
    }
    this.last = `${step} ${done}`;
    this.seen = this.seen.filter(({ at }) => now - at <= MEASURED);
    this.seen.push({ at: now, done });
    const [first] = this.seen;
    const seconds = (now - first.at) / 1000;
    if (now - first.at < LEAST || done <= first.done) return [];
    const rate = (done - first.done) / seconds;
    const left = total > done ? `${span(Math.max(1000, (total - done) / rate * 1000))} left` : null;
    if (this.silence()) return [];
    // Seconds pass at one in a second.
    return [unit === "s" ? null : `${rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en")}/s`, left];
  }

  // The time without a change, if it is long: messages are hidden.
  silence() {
    const still = performance.now() - this.moved;
    return still > SILENT ? `no change for ${span(still)}` : null;
  }
}
