// Charges orders. Requeue invokes `handler` with the SQS event, and retries each failed record by its class.

import { BatchProcessor, EventType, processPartialResponse } from '@aws-lambda-powertools/batch';
import type { Context, SQSEvent, SQSRecord } from 'aws-lambda';

/** The bank asks to wait. */
class BankBusy extends Error {
  readonly seconds: number;

  constructor(seconds: number) {
    super(`the bank asks for ${seconds} s`);
    this.seconds = seconds;
  }
}

/** No retry can help. */
class InvalidOrder extends Error {}

async function charge(record: SQSRecord): Promise<void> {
  const order: { cents: number; card?: string } = JSON.parse(record.body);
  if (order.cents <= 0) throw new InvalidOrder('an order has a positive amount');
  if (order.card === 'busy') throw new BankBusy(60);
  if (order.card !== 'ok') throw Object.assign(new Error('the bank did not respond'), { name: 'TimeoutError' });
}

/** What Requeue reads in a failed item; SQS and Powertools ignore it. */
function verdict(error?: Error): object {
  if (error instanceof BankBusy) return { class: 'rate-limit', delaySeconds: error.seconds, reason: 'bank-busy' };
  if (error instanceof InvalidOrder || error instanceof SyntaxError) return { class: 'non-retryable', reason: 'invalid-order' };
  // Requeue finds the class by the type.
  return { errorType: error?.name, errorMessage: error?.message };
}

export async function handler(event: SQSEvent, context: Context): Promise<{ batchItemFailures: object[] }> {
  // If all records fail, Powertools would throw, and the fields would be lost.
  const options = { context, throwOnFullBatchFailure: false };
  const processor = new BatchProcessor(EventType.SQS);
  const { batchItemFailures } = await processPartialResponse(event, charge, processor, options);
  return { batchItemFailures: batchItemFailures.map((item, place) => ({ ...item, ...verdict(processor.errors[place]) })) };
}
