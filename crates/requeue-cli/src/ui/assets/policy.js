// The screen "Policy".

import { h } from "/dom.js";

export function policy(root) {
  root.append(h("h1", {}, "Policy"));
}
