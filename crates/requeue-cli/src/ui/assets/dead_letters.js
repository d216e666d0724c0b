// The screen "Dead letters".

import { h } from "/dom.js";

export function deadLetters(root) {
  root.append(h("h1", {}, "Dead letters"));
}
