// The screen "Live": the events of the worker or the function that runs in the same process.

import { h } from "/dom.js";

export function live(root, page) {
  root.append(h("h1", {}, "Live"));
  if (!page.live) {
    root.append(h("p", {}, "Nothing runs in this process. Start a worker or a function with the page:"));
    root.append(h("pre", {}, "requeue work --queue-url URL --ui\nrequeue serve --ui -- cargo run"));
  }
}
