// Functions that do what the field `do` in a body says, without and with Powertools.

import { existsSync, readFileSync } from "node:fs";
import {
  BatchProcessor,
  EventType,
  SqsFifoPartialProcessor,
  processPartialResponse,
  processPartialResponseSync,
} from "@aws-lambda-powertools/batch";

class BankClosed extends Error {
  name = "BankClosed";
}

class ThrottlingException extends Error {
  name = "ThrottlingException";
}

// Whole responses of a function.
const RESPONSES = JSON.parse(readFileSync(new URL("responses.json", import.meta.url)));

const ITEMS = {
  classified: { class: "rate-limit", delaySeconds: 7, reason: "back-at-nine" },
  misnamed: { class: "RATE_LIMITED" },
};

/** Whether the record is done. */
function act(record) {
  const body = JSON.parse(record.body);
  const count = Number(record.attributes.ApproximateReceiveCount);
  console.log("gets", record.messageId, body.name ?? body.do, count);
  switch (body.do) {
    case "throw":
      throw new BankClosed("back-at-nine");
    case "throttle":
      throw new ThrottlingException("slow down");
    case "needs":
      return existsSync(body.file);
    case "hang":
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60_000);
      break;
    case "exit":
      process.exit(3);
    case "killed":
      process.kill(process.pid, "SIGKILL");
    case "forge":
      process.stdout.write("12:00:00 #7 1 message: 1 deleted, 1 ms\r12:00:00 #8 1 message\x1b[2K\n");
  }
  return body.do !== "fail" && count > (body.failures ?? 0);
}

export async function plain(event) {
  const batchItemFailures = [];
  for (const record of event.Records) {
    const { do: what } = JSON.parse(record.body);
    if (what in RESPONSES) return RESPONSES[what];
    if (what in ITEMS) batchItemFailures.push({ itemIdentifier: record.messageId, ...ITEMS[what] });
    else if (!act(record)) batchItemFailures.push({ itemIdentifier: record.messageId });
  }
  return { batchItemFailures };
}

function handle(record) {
  if (!act(record)) throw new BankClosed("back-at-nine");
}

export async function powertools(event, context) {
  return processPartialResponse(event, async (record) => handle(record), new BatchProcessor(EventType.SQS), { context });
}

export async function powertools_fifo(event, context) {
  return processPartialResponseSync(event, handle, new SqsFifoPartialProcessor(), { context });
}

// The one way to a response that is no JSON.
export const streamed = awslambda.streamifyResponse(async (event, stream) => {
  stream.write("{ no");
  stream.end();
});
