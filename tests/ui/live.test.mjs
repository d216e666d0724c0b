// The screen "Live", with real workers, functions and targets.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { createInterface } from "node:readline";
import { after, afterEach, before, test } from "node:test";
import * as world from "./world.mjs";

const REQUEUE = process.env.REQUEUE_BIN ?? "target/debug/requeue";
const FUNCTION = process.env.REQUEUE_LAMBDA_BIN ?? "target/debug/requeue-lambda";
const PATIENCE = { timeout: 30_000 };
// Short delays, so that retries are seen. The body of a message is its own response.
const ENVIRONMENT = {
  PATH: process.env.PATH, AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test", AWS_REGION: "us-east-1", AWS_EC2_METADATA_DISABLED: "true",
  REQUEUE_DEAD_LETTER: "annotate",
  REQUEUE_POLICY: JSON.stringify({ jitter: "none", errorConfigs: { DEFAULT: { backoff: "linear", baseDelay: 2, maxDelay: 2 } } }),
};

let browser;
const ends = [];

before(async () => {
  browser = await world.launch();
});
afterEach(async () => {
  // A process that goes on would keep this one.
  const failures = [];
  while (ends.length > 0) await ends.pop()().catch((failure) => failures.push(failure));
  if (failures.length > 0) throw failures[0];
});
after(() => world.end(browser));

// Starts a command and returns the values of its lines by their names.
async function start(args, names, environment = {}) {
  const child = spawn(REQUEUE, args, { env: { ...ENVIRONMENT, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
  ends.push(async () => {
    if (child.exitCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  const values = { child };
  await new Promise((resolve, reject) => {
    child.once("exit", (status) => reject(new Error(`${args[0]} ended with ${status}`)));
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        const name = names.find((one) => line.startsWith(`${one} `));
        if (name) values[name] ??= line.slice(name.length).trim();
        if (names.every((one) => one in values)) resolve();
      });
    }
  });
  return values;
}

// A service that responds as the body asks: its status until so many attempts, and then 200. It holds
// a response until `release()` if the body says so.
async function target(port = 0) {
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", async () => {
      const { status = 200, times = 99, isHeld = false } = JSON.parse(body);
      const retries = Number(request.headers["x-requeue-retry-count"] ?? 0);
      const answer = retries < times ? status : 200;
      if (isHeld) await released;
      response.writeHead(answer, answer === 429 ? { "retry-after": "2" } : {}).end();
    });
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const end = () => new Promise((ended) => {
    server.close(ended);
    server.closeAllConnections();
  });
  ends.push(end);
  return { end, release, port: server.address().port, url: `http://127.0.0.1:${server.address().port}/orders` };
}

async function sqs() {
  const served = await start(["serve", "--port", "0", "--sqs-port", "0"], ["SQS", "queue"]);
  return { child: served.child, endpoint: served.SQS, queue: served.queue };
}

async function worker(queues, url, environment = {}) {
  const args = ["work", "--ui=0", "--queue-url", queues.queue, "--target-url", url];
  return start(args, ["page"], { AWS_ENDPOINT_URL_SQS: queues.endpoint, ...environment });
}

async function open(url) {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error));
  await page.goto(url);
  ends.push(async () => {
    await page.close();
    assert.deepEqual(errors, []);
  });
  return page;
}

const figure = (page, name) => page.locator(".figures div", { hasText: name }).locator("dd");
const messages = (page, state) => page.locator(".life", { hasText: state });
const body = (fields) => JSON.stringify({ canary: "secret-canary", ...fields });

test("a worker's messages are shown through pauses, failures and an outage of the target", async () => {
  const [queues, shop] = [await sqs(), await target()];
  const { page: url } = await worker(queues, shop.url);
  const page = await open(url);
  const texts = [];
  page.on("response", async (response) => texts.push(response.url()));
  await world.send(queues, queues.queue, [
    body({}), body({ status: 503, times: 1 }), body({ status: 400 }), body({ status: 429, times: 1 }),
  ]);
  await page.getByText("paused", { exact: true }).waitFor(PATIENCE);
  for (const name of ["rate-limit", "temporary", "non-retryable"]) {
    await page.locator(".class", { hasText: name }).waitFor(PATIENCE);
  }
  await messages(page, "dead-lettered").waitFor(PATIENCE);
  await page.waitForFunction(() => [...document.querySelectorAll(".life")].filter(({ textContent }) => textContent.includes("done")).length === 3, null, PATIENCE);

  await messages(page, "attempt 2").first().click();
  const steps = await page.locator(".steps").textContent();
  for (const step of ["received", "called", "call ended", "copy sent", "deleted"]) assert.ok(steps.includes(step), steps);

  await shop.end();
  await world.send(queues, queues.queue, Array.from({ length: 8 }, () => body({})));
  await page.getByText(/target http:\/\/127\.0\.0\.1.*: connection refused ×\d+/).waitFor(PATIENCE);
  await page.getByText("circuit open", { exact: true }).waitFor(PATIENCE);
  const banner = page.getByText(/^Circuit open for all messages: .*connection refused.*\. (No message probes before \d\d:\d\d:\d\d UTC\. After that, one|A message) probes as soon as SQS delivers one that may\.$/);
  await banner.waitFor(PATIENCE);
  const backlog = page.getByRole("img", { name: /^Backlog: now [\d,]+, at most [\d,]+ since \d\d:\d\d:\d\d UTC$/ });
  await backlog.waitFor(PATIENCE);
  await page.getByLabel("Id", { exact: true }).fill("0");
  const since = (name) => name.match(/since (.*) UTC/)[1];
  const before = since(await backlog.getAttribute("aria-label"));
  await page.reload();
  assert.equal(await page.getByLabel("Id", { exact: true }).inputValue(), "0");
  await page.waitForFunction((from) => document.querySelector("canvas[aria-label^='Backlog:']")?.getAttribute("aria-label").includes(from), before, PATIENCE);
  await page.getByLabel("Id", { exact: true }).fill("");
  await page.getByText(/^The next one in \d+ s/).waitFor(PATIENCE);
  await target(shop.port);
  await page.getByText("None: each message may call.").waitFor(PATIENCE);
  assert.equal(await banner.count(), 0, "the banner is gone with the circuit");
  await page.waitForFunction(() => [...document.querySelectorAll(".life")].filter(({ textContent }) => textContent.includes("done")).length === 11, null, PATIENCE);
  assert.equal(await page.getByText(/connection refused ×/).count(), 0, "the trouble is over");
  assert.ok(!(await page.content()).includes("secret-canary"), "no body is shown");
});

// Reads events until there are so many of the kind, and breaks the connection.
async function follow(url, cookie, kind, number) {
  const response = await fetch(url, { headers: { cookie }, signal: AbortSignal.timeout(PATIENCE.timeout) });
  const events = [];
  let text = "";
  let place;
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = JSON.parse(text.slice("data: ".length, end));
      text = text.slice(end + 2);
      if (!data.events) continue;
      events.push(...data.events);
      place = data;
    }
    if (events.filter((event) => event.kind === kind).length >= number) break;
  }
  return { events, place };
}

test("after a break the events go on where they were", async () => {
  const [queues, shop] = [await sqs(), await target()];
  const { page: url } = await worker(queues, shop.url);
  const opened = await fetch(url);
  const cookie = opened.headers.get("set-cookie").split(";")[0];
  const events = new URL("/api/live/events", url);
  await world.send(queues, queues.queue, [body({}), body({})]);
  const before = await follow(events, cookie, "deleted", 2);
  await world.send(queues, queues.queue, [body({})]);
  const { run, next } = before.place;
  const after = await follow(`${events}?run=${run}&next=${next}`, cookie, "deleted", 1);
  assert.deepEqual(after.events.map(({ kind }) => kind).sort(), ["called", "deleted", "ended", "received"]);
  const anew = await follow(`${events}?run=another&next=${next}`, cookie, "deleted", 3);
  assert.deepEqual(anew.events, [...before.events, ...after.events]);
  assert.ok(!JSON.stringify(anew.events).includes("secret-canary"));
});

test("a function's messages are shown by the queue and its log, up to the dead-letter queue", async () => {
  const shop = await target();
  const args = ["serve", "--ui=0", "--sqs-port", "0", "--visibility-timeout", "15", "--function", FUNCTION];
  const served = await start(args, ["SQS", "queue", "page"], { REQUEUE_TARGET_URL: shop.url });
  const queues = { endpoint: served.SQS };
  const page = await open(served.page);
  await world.send(queues, served.queue, [body({}), body({ status: 503, times: 1 }), body({ status: 400 })]);
  await page.locator(".class", { hasText: "temporary" }).waitFor(PATIENCE);
  await messages(page, "dead").waitFor(PATIENCE);
  await page.waitForFunction(() => [...document.querySelectorAll(".life")].filter(({ textContent }) => textContent.includes("done")).length === 2, null, PATIENCE);
  await figure(page, "dead").filter({ hasText: "1" }).waitFor(PATIENCE);
});

test("the log of a function in another language is read, and its texts are no markup", async () => {
  const args = ["serve", "--ui=0", "--sqs-port", "0", "--timeout", "1", "--visibility-timeout", "1", "--max-receive-count", "2", "--", "node", "tests/ui/function.mjs"];
  const served = await start(args, ["SQS", "queue", "page"]);
  const queues = { endpoint: served.SQS };
  const page = await open(served.page);
  await world.send(queues, served.queue, ["good", "bad"]);
  await messages(page, "done").waitFor(PATIENCE);
  await messages(page, "dead").click(PATIENCE);
  await page.locator(".steps").getByText("<b>not</b> today").first().waitFor(PATIENCE);
  assert.equal(await page.locator("main b").count(), 0);
});

// Machado, Oliveira and Fernandes 2009: how a colour looks without one of the three kinds of cones.
const VISIONS = {
  whole: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

// The colour in CIELAB, whose distances are those of the eye. About 2 is the least that anybody sees.
function lab(colour, vision) {
  const linear = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  const [r, g, b] = vision.map((row) => Math.min(1, Math.max(0, row.reduce((sum, part, at) => sum + part * linear[at], 0))));
  const f = (value) => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116);
  const [x, y, z] = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089].map(f);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

test("the colours of results differ for every vision, in light and in dark", async () => {
  const style = await readFile("crates/requeue-cli/src/ui/assets/style.css", "utf8");
  const names = ["done", "class-rate-limit", "class-quota", "class-temporary", "class-non-retryable"];
  for (const [number, scheme] of ["light", "dark"].entries()) {
    const colours = names.map((name) => [...style.matchAll(new RegExp(`--${name}: (#[0-9a-f]{6});`, "g"))][number][1]);
    for (const [vision, matrix] of Object.entries(VISIONS)) {
      const seen = colours.map((colour) => lab(colour, matrix));
      for (const [at, one] of seen.entries()) {
        for (const [of, other] of seen.slice(0, at).entries()) {
          const distance = Math.hypot(...one.map((part, index) => part - other[index]));
          assert.ok(distance > 25, `${names[at]} and ${names[of]}, ${scheme}, ${vision}: ${Math.round(distance)}`);
        }
      }
    }
  }
});

test("thousands of messages have few rows", async () => {
  const [queues, shop] = [await sqs(), await target()];
  await world.send(queues, queues.queue, Array.from({ length: 5000 }, () => body({})));
  const { page: url } = await worker(queues, shop.url, { REQUEUE_CONCURRENCY: "40" });
  const page = await open(url);
  await page.locator(".shown").filter({ hasText: /^5,000 messages$/ }).waitFor({ timeout: 120_000 });
  assert.ok((await page.locator(".life").count()) < 40);
  await page.locator(".lives").evaluate((lives) => lives.scrollTo(0, lives.scrollHeight));
  await page.waitForFunction(() => document.querySelector(".life:not([hidden])").style.top !== "0px", null, PATIENCE);
  await page.getByLabel("Hold the picture").check();
  assert.equal(await messages(page, "done").first().isVisible(), true);
});

test("a message that was dead-lettered is shown so, whichever of its events come", async () => {
  // Node would read the file as CommonJS.
  const module = await readFile("crates/requeue-cli/src/ui/assets/live_messages.js", "utf8");
  const { Messages } = await import(`data:text/javascript,${encodeURIComponent(module)}`);
  const of = (kind, more = {}) => ({ kind, at: 1_000, messageId: "m", originalMessageId: "m", attempt: 1, ...more });
  const failure = { class: "temporary", reason: "status 503" };
  for (const events of [
    [of("called"), of("ended", failure), of("dead-lettered", failure)],
    [of("called"), of("ended", failure), of("copied", { reason: "retries-exhausted" })],
    [of("received"), of("released", { reason: "annotated: status 503" })],
  ]) {
    const all = new Messages();
    for (const event of events) all.add(event);
    assert.equal(all.byId.get("m").state, "dead-lettered", JSON.stringify(events));
    assert.ok(all.failures.every(({ kind }) => kind === "dead-lettered"));
    // It is redriven as another message, waits for a circuit, and fails again.
    all.add(of("received", { messageId: "n" }));
    all.add(of("deferred", { messageId: "n", delay: 9 }));
    assert.equal(all.byId.get("m").state, "deferred");
    const before = all.failures.length;
    for (const event of [of("dead-lettered"), of("called", { messageId: "o" }), of("ended", { messageId: "o", ...failure })]) all.add(event);
    assert.equal(all.failures.length, before + 1);
  }
});

test("a worker that ends waits for a redrive of its page, and tells its result", async () => {
  const [queues, shop] = [await sqs(), await target()];
  const deadLetters = `${queues.queue}-dlq`;
  await world.send(queues, deadLetters, Array.from({ length: 60 }, () => world.deadLetter(0)));
  const args = ["work", "--ui=0", "--allow-redrive", "--queue-url", queues.queue, "--target-url", shop.url];
  const { page: url, child } = await start(args, ["page"], { AWS_ENDPOINT_URL_SQS: queues.endpoint });
  let output = "";
  child.stdout.on("data", (data) => (output += data));
  const page = await open(url.replace(/$/, "#dead-letters"));
  await page.getByRole("button", { name: "Look at the queue" }).click();
  await page.getByLabel(/^Choose 60 messages:/).check();
  await page.getByLabel(/Redrive at/).fill("5");
  await page.getByRole("button", { name: "Plan the redrive" }).click();
  await page.getByRole("button", { name: "Redrive 60 messages" }).click();
  await page.getByText(/^[1-9]\d* of 60 messages/).waitFor(PATIENCE);
  const live = await open(url.replace(/$/, "#live"));
  await live.getByText(/^orders to /).waitFor(PATIENCE);
  const ended = once(child, "exit");
  child.kill("SIGINT");
  assert.deepEqual(await ended, [0, null], output);
  await live.getByText(/^Ended: orders to /).waitFor(PATIENCE);
  assert.equal(await live.getByText("waiting", { exact: true }).and(live.locator("dt")).count(), 0, "no old depth");
  assert.match(output, /redrive: \d+ messages? copied to orders; \d+ messages of the chosen ones not copied/);
  assert.ok(!output.includes("panic"), output);
  assert.equal((await world.count(queues, deadLetters)).inFlight, 0, "each one that stays is visible again");
});

test("the page says at the end of a worker what may come again, as the terminal does", async () => {
  const [queues, shop] = [await sqs(), await target()];
  const args = ["work", "--ui=0", "--shutdown-timeout", "10s", "--queue-url", queues.queue, "--target-url", shop.url];
  const { page: url, child } = await start(args, ["page"], { AWS_ENDPOINT_URL_SQS: queues.endpoint });
  const page = await open(url);
  await world.send(queues, queues.queue, [body({ status: 400 })]);
  await page.getByText("dead-lettered", { exact: true }).first().waitFor(PATIENCE);
  await world.send(queues, queues.queue, Array.from({ length: 5 }, () => body({ isHeld: true })));
  await messages(page, "in a call").first().waitFor(PATIENCE);
  const ended = once(child, "exit");
  queues.child.kill("SIGSTOP");
  child.kill("SIGINT");
  await page.getByText(/^ending: .* left$/).waitFor(PATIENCE);
  shop.release();
  await page.getByText(/^note: done or copied, but not confirmed as deleted: [1-5] messages?, which SQS may deliver again/).waitFor(PATIENCE);
  await page.getByText("dead-lettered: 400 ×1").waitFor(PATIENCE);
  assert.deepEqual(await ended, [0, null]);
});
