// The programs of these tests: an SQS with dead letters, the page, and a browser. Each ends with the
// test process.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const REQUEUE = resolve(process.env.REQUEUE_BIN ?? "target/debug/requeue");
const CHROMIUM = process.env.REQUEUE_TEST_CHROMIUM ?? "/usr/bin/chromium";
const ENVIRONMENT = {
  AWS_ACCESS_KEY_ID: "test",
  AWS_SECRET_ACCESS_KEY: "test",
  AWS_EC2_METADATA_DISABLED: "true",
  AWS_REGION: "us-east-1",
  PATH: process.env.PATH,
};

const children = new Set();
const directories = new Set();

// Starts the command, and returns the values of its first lines by their names.
async function start(args, names, environment = {}, cwd = ".") {
  const child = spawn(REQUEUE, args, { cwd, env: { ...ENVIRONMENT, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.notes = "";
  child.stderr.on("data", (data) => {
    child.notes += data;
    process.stderr.write(data);
  });
  const values = {};
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    const name = names.find((one) => line.startsWith(`${one} `));
    if (name) values[name] = line.slice(name.length).trim();
    if (names.every((one) => one in values)) break;
  }
  child.stdout.resume();
  return { ...values, child };
}

export async function serve(...args) {
  const names = ["SQS", "queue", "dead letters", ...(args.some((one) => one.startsWith("--ui")) ? ["page"] : [])];
  const served = await start(["serve", "--port", "0", "--sqs-port", "0", ...args], names);
  const endpoint = served.SQS;
  return { endpoint, queue: served.queue, deadLetters: served["dead letters"], page: served.page, child: served.child };
}

// The same SQS behind a server that refuses the operation of its field `refused`.
export async function refusing(sqs) {
  const between = { ...sqs, refused: null };
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const operation = request.headers["x-amz-target"].split(".")[1];
    const head = { "content-type": "application/x-amz-json-1.0" };
    if (operation === between.refused) {
      response.writeHead(403, head).end(JSON.stringify({ __type: "com.amazonaws.sqs#AccessDeniedException" }));
      return;
    }
    const headers = { ...head, "x-amz-target": request.headers["x-amz-target"] };
    const answer = await fetch(sqs.endpoint, { method: "POST", headers, body: Buffer.concat(chunks) });
    response.writeHead(answer.status, head).end(await answer.text());
  });
  await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  server.unref();
  between.endpoint = `http://127.0.0.1:${server.address().port}`;
  return between;
}

export async function page(sqs, ...args) {
  const environment = sqs ? { AWS_ENDPOINT_URL_SQS: sqs.endpoint } : {};
  // A discard leaves a file there.
  const directory = await mkdtemp(join(tmpdir(), "requeue-ui-"));
  directories.add(directory);
  const port = args.includes("--port") ? [] : ["--port", "0"];
  const { page: url, child } = await start(["ui", ...port, ...args], ["page"], environment, directory);
  return { url, origin: new URL(url).origin, child, directory };
}

export async function call(sqs, operation, parameters) {
  const response = await fetch(sqs.endpoint, {
    method: "POST",
    headers: { "content-type": "application/x-amz-json-1.0", "x-amz-target": `AmazonSQS.${operation}` },
    body: JSON.stringify(parameters),
  });
  if (!response.ok) throw new Error(`${operation}: ${await response.text()}`);
  return response.json();
}

export async function count(sqs, queue) {
  const { Attributes: all } = await call(sqs, "GetQueueAttributes", { QueueUrl: queue, AttributeNames: ["All"] });
  return { visible: Number(all.ApproximateNumberOfMessages), inFlight: Number(all.ApproximateNumberOfMessagesNotVisible) };
}

const KINDS = [
  ["temporary", "retries-exhausted", "status 503"],
  ["quota", "too-old", "status 403: quotaExceeded"],
  ["rate-limit", "retries-exhausted", "status 429"],
  ["non-retryable", "non-retryable", "status 422: outdated-fare"],
  ["temporary", "too-old", "order 84010 timed out"],
];
const TENANTS = ["acme", "globex", "initech", "umbrella", "hooli"];

export function deadLetter(number) {
  // Uneven shares, as in a real queue.
  const [of, reason, detail] = KINDS[Math.floor((number * number) % 11 / 2.5)];
  const sent = Date.now() - (number % 97) * 3_600_000 - 600_000;
  const state = {
    v: 1,
    firstSent: sent,
    firstReceived: sent + 800,
    class: of,
    delay: 300,
    counts: of === "temporary" ? { temporary: 4, "rate-limit": 1 } : { [of]: 3 },
    deferrals: number % 3,
    deadLetter: { class: of, reason, detail, retryCount: of === "temporary" ? 5 : 3, failedAt: new Date(sent + 540_000).toISOString() },
  };
  return JSON.stringify({
    orderId: `A-${1000 + number}`,
    amount: 1999 + number,
    retryCount: of === "temporary" ? 5 : 3,
    originalMessageId: `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`,
    retryTimestamp: new Date(sent + 500_000).toISOString(),
    retryState: state,
  });
}

// Sends bodies to a queue, in batches, with a tenant each.
export async function send(sqs, queue, bodies) {
  const calls = [];
  for (let from = 0; from < bodies.length; from += 10) {
    const entries = bodies.slice(from, from + 10).map((body, at) => ({
      Id: String(at),
      MessageBody: body,
      MessageAttributes: { tenant: { DataType: "String", StringValue: TENANTS[(from + at) % 7 % TENANTS.length] } },
    }));
    calls.push(call(sqs, "SendMessageBatch", { QueueUrl: queue, Entries: entries }).then(({ Failed: failed = [] }) => {
      if (failed.length > 0) throw new Error(failed[0].Message);
    }));
    if (calls.length === 8) await Promise.all(calls.splice(0));
  }
  await Promise.all(calls);
}

// Waits for the end of a program after a signal.
export function stop(child, signal) {
  const ended = new Promise((resolve) => { child.on("exit", resolve); });
  child.kill(signal);
  return ended;
}

export async function launch() {
  const home = await mkdtemp(join(tmpdir(), "requeue-ui-"));
  const browser = await chromium.launchPersistentContext(home, {
    executablePath: CHROMIUM,
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    viewport: { width: 1280, height: 860 },
  });
  browser.home = home;
  return browser;
}

export async function end(browser) {
  await browser?.close();
  if (browser) await rm(browser.home, { recursive: true, force: true });
  for (const child of children) {
    child.kill("SIGKILL");
  }
  for (const directory of directories) await rm(directory, { recursive: true, force: true });
}
