// Follows a job of the server: its progress, a button that stops it, and its end.

import { read, send } from "/api.js";
import { announce, h } from "/dom.js";

const INTERVAL = 250;

// Shows the job at this path in the element, and calls `ended` with it. Returns a function that ends
// the watch; the job goes on.
export function follow(root, path, ended) {
  const step = h("p", { class: "step" });
  const bar = h("progress", { "aria-label": "Progress" });
  const counts = h("span", { class: "muted" });
  const stop = h("button", {
    type: "button",
    click: async () => {
      stop.disabled = true;
      await send(`${path}/stop`);
    },
  }, "Stop");
  root.replaceChildren(h("div", { class: "job" }, step, h("div", { class: "bar" }, bar, counts, stop)));
  announce("The work has begun.");
  let timer;
  let isWatched = true;
  const look = async () => {
    let job;
    try {
      job = await read(path);
    } catch {
      if (isWatched) timer = setTimeout(look, 4 * INTERVAL);
      return;
    }
    if (!isWatched) return;
    if (!job || !job.isRunning) {
      isWatched = false;
      root.replaceChildren();
      ended(job);
      return;
    }
    const { done, total, failed, unit, step: name } = job.progress;
    step.textContent = job.isStopping ? `${name}: stopping` : name;
    if (total) {
      bar.max = Math.max(total, done);
      bar.value = done;
    } else {
      bar.removeAttribute("value");
    }
    const of = total ? ` of ${Math.max(total, done).toLocaleString("en")}` : "";
    counts.textContent = unit ? `${done.toLocaleString("en")}${of} ${unit}${failed ? `, ${failed} failed` : ""}` : "";
    timer = setTimeout(look, INTERVAL);
  };
  look();
  return () => {
    isWatched = false;
    clearTimeout(timer);
  };
}
