// The screen "Policy": documents with their errors, schedules, costs and simulations.

import { send } from "/api.js";
import { announce, count, h, keep, kept, span } from "/dom.js";
import { follow } from "/job.js";

const ROOT = "/api/policy";
// How long the page waits for the next key.
const PAUSE = 250;

const PRESETS = {
  standard: { preset: "standard" },
  "high-volume": { preset: "high-volume" },
  critical: { preset: "critical" },
  "paced retries": {
    preset: "standard",
    maxRetries: 20,
    rateLimit: { limit: 50, periodSeconds: 1 },
    circuitBreaker: { threshold: 5 },
  },
  "single classes": {
    preset: "standard",
    errorConfigs: {
      "rate-limit": { baseDelay: 10, maxDelay: 120, maxRetries: 10 },
      quota: { backoff: [300, 900, 3600] },
    },
  },
};

const OPTIONS = [
  ["strategy", "Strategy", ["copy", "visibility"]],
  ["dead-letter", "Dead-letter mode", ["redrive", "annotate", "direct"]],
  ["max-receive-count", "maxReceiveCount", { min: 1, max: 1000, placeholder: "5" }],
  ["visibility-timeout", "Visibility timeout, s", { min: 0, max: 43200, placeholder: "360" }],
  ["message-bytes", "Message, bytes", { min: 1, max: 1048576, placeholder: "1024" }],
  ["price-per-million", "USD a million requests", { min: 0, step: "any", placeholder: "0.40" }],
];

const SIMULATIONS = {
  outage: {
    name: "Outage",
    text: "A backlog, and a service that is down and then limits its rate: without and with pause and circuit breaker.",
    fields: [
      ["messages", "Messages", 2000, 1, 5000],
      ["outage", "Seconds down", 600, 0, 3600],
      ["rate", "Calls a second afterwards", 50, 1, 1000],
      ["scopes", "Scopes", 1, 1, 100],
    ],
  },
  rate: {
    name: "Rate limit",
    text: "A backlog, and a service that counts calls: without a limit, with one in each execution environment, and with one that all share.",
    fields: [
      ["messages", "Messages", 2000, 1, 10000],
      ["limit", "Calls in each period", 50, 1, 1000],
      ["period", "Period, s", 1, 1, 60],
      ["environments", "Execution environments", 20, 1, 100],
    ],
  },
};

export function policy(root) {
  const editors = [];
  // The charts share their axes, so a change of one document draws both.
  const changed = () => editors.forEach((editor) => editor.later());
  const options = new Options(changed);
  const add = (name, document) => {
    const beside = () => editors.find((other) => other.name !== name)?.text.value;
    editors.push(new Editor(name, { options, beside, changed }, document));
    editors.forEach((editor) => editor.draw());
  };
  add("A", PRESETS.standard);
  const columns = h("div", { class: "policies" }, editors[0].root);
  const compare = h("button", {
    type: "button",
    "aria-pressed": "false",
    click: () => {
      const isOpen = editors.length === 2;
      if (isOpen) {
        const closed = editors.pop();
        closed.leave();
        closed.root.remove();
        changed();
      } else {
        add("B", PRESETS.critical);
        columns.append(editors[1].root);
      }
      compare.setAttribute("aria-pressed", String(!isOpen));
      compare.textContent = isOpen ? "Compare with a second policy" : "Close the second policy";
      columns.classList.toggle("two", !isOpen);
    },
  }, "Compare with a second policy");
  const simulation = new Simulation(editors[0]);
  root.append(
    h("h1", {}, "Policy"),
    h("p", { class: "muted" }, "The schedule of a policy, drawn anew as you type. Nothing is stored or sent to AWS."),
    h("div", { class: "row" }, options.root, compare),
    columns,
    simulation.root,
  );
  return () => {
    editors.forEach((editor) => editor.leave());
    simulation.leave();
  };
}

// The queue and the settings around a policy.
class Options {
  constructor(changed) {
    this.inputs = OPTIONS.map(([name, label, kind]) => {
      const input = Array.isArray(kind)
        ? h("select", { name, change: changed }, kind.map((value) => h("option", {}, value)))
        : h("input", { name, type: "number", input: changed, ...kind });
      return h("label", {}, label, kept(`policy-${name}`, input));
    });
    this.root = h("details", { class: "options" }, h("summary", {}, "Queue and settings"), h("div", { class: "filters" }, this.inputs));
  }

  values() {
    const inputs = this.inputs.map((label) => label.querySelector("input, select"));
    return Object.fromEntries(inputs.filter((input) => input.value !== "").map((input) => [input.name, input.value]));
  }
}

class Editor {
  // `around` has the options, the text of the other editor, and what to do after a change.
  constructor(name, around, document) {
    this.around = around;
    this.name = name;
    this.text = h("textarea", {
      rows: "11",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      "aria-label": `Policy ${name}: the document`,
      "aria-describedby": `problems-${name}`,
      maxlength: "65536",
      input: () => this.changed(),
    });
    this.text.value = JSON.stringify(document, null, 2);
    kept(`policy-${name}`, this.text);
    this.problems = h("div", { id: `problems-${name}`, class: "problems", role: "status" });
    this.ends = h("div", { class: "outcome" });
    this.outcome = h("div", { class: "outcome" });
    this.copied = h("span", { class: "muted", role: "status" });
    const presets = h("select", {
      "aria-label": `Policy ${name}: start from`,
      change: () => {
        this.text.value = JSON.stringify(PRESETS[presets.value], null, 2);
        this.changed();
      },
    }, Object.keys(PRESETS).map((preset) => h("option", {}, preset)));
    presets.value = Object.keys(PRESETS).find((preset) => PRESETS[preset] === document);
    this.root = h("section", { class: "policy", "aria-label": `Policy ${name}` },
      h("div", { class: "row" },
        h("label", { class: "start" }, `Policy ${name}, start from `, presets),
        h("span", { class: "copy" }, this.copied,
          h("button", { type: "button", click: () => this.copy((text) => text) }, "Copy REQUEUE_POLICY"),
          h("button", { type: "button", click: () => this.copy((text) => `Policy='${text.replaceAll("'", "'\\''")}'`) }, "Copy SAM parameter"))),
      h("div", { class: "editor" }, this.text, h("div", {}, this.problems, this.ends)),
      this.outcome,
    );
  }

  leave() {
    this.isLeft = true;
    clearTimeout(this.timer);
    this.request?.abort();
    if (this.url) URL.revokeObjectURL(this.url);
  }

  changed() {
    keep(`policy-${this.name}`, this.text.value);
    this.around.changed();
  }

  // Draws once there are no more changes.
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), PAUSE);
  }

  async draw() {
    this.request?.abort();
    this.request = new AbortController();
    let drawn;
    try {
      const asked = { policy: this.text.value, options: this.around.options.values(), beside: this.around.beside() };
      drawn = await send(`${ROOT}/schedule`, asked, { signal: this.request.signal });
    } catch (error) {
      if (error.name !== "AbortError") this.showProblems([{ text: error.message }]);
      return;
    }
    if (this.isLeft) return;
    this.showProblems(drawn.problems);
    if (drawn.problems.length === 0) this.show(drawn);
  }

  showProblems(problems) {
    this.text.setAttribute("aria-invalid", String(problems.length > 0));
    if (this.copied.textContent.startsWith("not copied")) this.copied.textContent = "";
    for (const part of [this.ends, this.outcome]) part.classList.toggle("old", problems.length > 0);
    const order = [...problems].sort((one, other) => (one.line ?? 0) - (other.line ?? 0));
    const items = order.map(({ text, line, column }) => h("li", {},
      line ? h("button", { type: "button", class: "link", click: () => this.go(line, column) }, `line ${line}, column ${column}`) : null,
      line ? ": " : null,
      text.replace(` at line ${line} column ${column}`, "")));
    this.problems.replaceChildren(problems.length > 0 ? h("ul", {}, items) : h("p", { class: "valid" }, "✓ valid"));
  }

  // Puts the cursor to this position, counted from 1.
  go(line, column) {
    const lines = this.text.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((all, one) => all + one.length + 1, 0) + column - 1;
    this.text.focus();
    this.text.setSelectionRange(at, at);
  }

  show({ chart, schedule, report }) {
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = URL.createObjectURL(new Blob([chart], { type: "image/svg+xml" }));
    const isOpen = [...this.outcome.querySelectorAll("details")].map((details) => details.open);
    const image = h("img", { class: "chart", src: this.url, width: "1280", height: "800", alt: `The waits before each retry, and the age of the message. The table has the same numbers.` });
    const details = [
      h("details", {}, h("summary", {}, "Each retry as a table"), schedule.classes.filter((of) => of.retries.length > 0).map(retries)),
      h("details", {}, h("summary", {}, "The report of requeue check"), h("pre", {}, report)),
    ];
    details.forEach((one, at) => { one.open = isOpen[at] ?? false; });
    this.ends.replaceChildren(summary(schedule));
    this.outcome.replaceChildren(h("a", { class: "chart", href: this.url, download: "schedule.svg", title: "Download the chart" }, image), h("p", { class: "cue muted" }, "Scroll the chart sideways for the rest →"), ...details);
  }

  async copy(write) {
    if (this.text.getAttribute("aria-invalid") === "true") {
      this.copied.textContent = "not copied: the document has problems";
      return;
    }
    let text;
    try {
      text = JSON.stringify(JSON.parse(this.text.value));
    } catch {
      this.copied.textContent = "not JSON, so not copied";
      return;
    }
    try {
      await navigator.clipboard.writeText(write(text));
      this.copied.textContent = `copied, ${count(new Blob([text]).size, "byte")}`;
    } catch {
      this.copied.textContent = "the browser refuses to copy";
    }
  }
}

const seconds = (number) => (number === null ? "" : span(number * 1000));
const usd = (number) => `$${number.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;

function range({ min, max }, write) {
  const [from, to] = [write(min), write(max)];
  return from === to ? from : `${from} to ${to}`;
}

// One row for each class: how it ends, and its cost.
function summary(schedule) {
  const rows = schedule.classes.map((of) => {
    const { min, median, max } = of.end;
    return h("tr", {},
      h("th", { scope: "row" }, h("span", { class: `class ${of.class}` }, of.class)),
      h("td", { class: "number" }, range({ min: min.afterRetries, max: max.afterRetries }, String)),
      h("td", {}, range({ min: min.ageSeconds, max: max.ageSeconds }, seconds)),
      h("td", {}, median.reason),
      h("td", { class: "number" }, range({ min: of.requests.min.alone.usdPerMillionMessages, max: of.requests.max.alone.usdPerMillionMessages }, usd)),
      h("td", { class: "number" }, range({ min: of.requests.min.batched.usdPerMillionMessages, max: of.requests.max.batched.usdPerMillionMessages }, usd)));
  });
  const heads = [["Class"], ["Retries", "number"], ["Dead-lettered at age"], ["Reason"], ["Cost of a million", "number"], ["in batches", "number"]];
  return h("div", { class: "scroll" }, h("table", { class: "summary", "aria-label": "End and cost of a message that never succeeds" },
    h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), h("tbody", {}, rows)));
}

// The retries of a class. Retries with the same delay are one row.
function retries(of) {
  const runs = [];
  for (const retry of of.retries) {
    const last = runs.at(-1);
    const delay = JSON.stringify(retry.delaySeconds);
    if (last?.delay === delay) Object.assign(last, { to: retry.retry, retry });
    else runs.push({ from: retry.retry, to: retry.retry, delay, retry });
  }
  const row = ({ from, to, retry }) => h("tr", {},
    h("td", { class: "number" }, from === to ? from : `${from}–${to}`),
    ["min", "median", "max"].map((key) => h("td", { class: "number" }, seconds(retry.delaySeconds[key]))),
    ["min", "median", "max"].map((key) => h("td", { class: "number" }, seconds(retry.ageSeconds[key]))));
  return [
    h("h3", {}, h("span", { class: `class ${of.class}` }, of.class)),
    h("div", { class: "scroll" }, h("table", { "aria-label": `Retries of ${of.class}` },
      h("thead", {}, h("tr", {}, ["Retry", "Wait: least", "median", "most", "Age: least", "median", "most"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
      h("tbody", {}, runs.slice(0, 200).map(row)))),
  ];
}

// The simulations of the first policy.
class Simulation {
  constructor(editor) {
    this.editor = editor;
    this.work = h("div");
    this.result = h("div", { "aria-live": "polite" });
    this.ends = () => {};
    this.forms = Object.entries(SIMULATIONS).map(([path, simulation]) => this.form(path, simulation));
    this.root = h("section", { class: "simulation", "aria-label": "Simulations" },
      h("h2", {}, "Simulate policy A"), h("div", { class: "forms" }, this.forms), this.work, this.result);
  }

  form(path, { name, text, fields }) {
    const inputs = fields.map(([key, label, value, min, max]) => h("label", {}, label, kept(`simulation-${path}-${key}`, h("input", { type: "number", name: key, value, min, max, required: true }))));
    const form = h("form", {
      "aria-label": name,
      submit: (event) => {
        event.preventDefault();
        this.start(path, Object.fromEntries(new FormData(form)), name);
      },
    }, h("h3", {}, name), h("p", { class: "muted" }, text), h("div", { class: "filters" }, inputs), h("button", { class: "primary" }, `Simulate ${name.toLowerCase()}`));
    return form;
  }

  async start(path, options, name) {
    this.result.replaceChildren();
    try {
      await send(`${ROOT}/${path}`, { policy: this.editor.text.value, options });
    } catch (error) {
      this.fail(error.message);
      return;
    }
    this.follow(name);
  }

  // An error is about the document of that moment.
  fail(text) {
    this.result.replaceChildren(h("p", { class: "problem" }, text));
    this.editor.text.addEventListener("input", () => this.result.querySelector(":scope > .problem")?.remove(), { once: true });
  }

  follow(name) {
    this.toggle(true);
    this.ends = follow(this.work, `${ROOT}/job`, (job) => {
      this.toggle(false);
      if (!job) return;
      if (job.error) {
        this.fail(job.error);
        return;
      }
      const { names, rows } = job.result;
      this.result.replaceChildren(h("h3", {}, name), h("div", { class: "scroll" }, h("table", { "aria-label": `Result of the simulation: ${name}` },
        h("thead", {}, h("tr", {}, h("th", {}), names.map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row", class: "indented" }, row.name), row.values.map((value) => h("td", {}, value))))))));
      announce("The simulation has ended.");
    });
  }

  toggle(isRunning) {
    for (const button of this.root.querySelectorAll("form button")) button.disabled = isRunning;
  }

  leave() {
    this.ends();
  }
}
