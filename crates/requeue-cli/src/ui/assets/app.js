// Shows the screen that the address names.

import { read } from "/api.js";
import { h } from "/dom.js";
import { deadLetters } from "/dead_letters.js";
import { live } from "/live.js";
import { policy } from "/policy.js";

// Each screen fills an element, and may return a function that ends its work.
const SCREENS = { "#dead-letters": deadLetters, "#live": live, "#policy": policy };

const main = document.getElementById("main");
let page;
let leave;

function show(isFirst) {
  const name = location.hash.split("/")[0];
  const screen = SCREENS[name] ? name : page.start;
  if (leave) leave();
  const root = h("div", { class: "screen" });
  main.replaceChildren(root);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === screen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave = SCREENS[screen](root, page);
  document.title = `${root.querySelector("h1").textContent} · requeue`;
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

// The address shall not keep the token.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
try {
  page = await read("/api/page");
  page.start = page.live ? "#live" : "#dead-letters";
  document.getElementById("facts").textContent = page.mayRedrive ? "may change queues" : "read-only";
  show(true);
  window.addEventListener("hashchange", () => {
    if (location.hash !== "#main") show(false);
  });
} catch (error) {
  main.replaceChildren(h("h1", {}, "No access"), h("p", {}, error.message));
}
