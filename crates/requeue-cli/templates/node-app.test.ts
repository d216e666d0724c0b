import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Context, SQSEvent } from 'aws-lambda';
import { handler } from './app.ts';

/** The failed items of a batch with these orders. */
async function items(...orders: object[]): Promise<any[]> {
  const records = orders.map((order, place) => ({ messageId: `m-${place}`, body: JSON.stringify(order), attributes: {} }));
  return (await handler({ Records: records } as unknown as SQSEvent, {} as Context)).batchItemFailures;
}

test('charged orders are done', async () => {
  assert.deepEqual(await items({ cents: 500, card: 'ok' }, { cents: 1, card: 'ok' }), []);
});

test('a busy bank says how long to wait', async () => {
  assert.deepEqual(await items({ cents: 500, card: 'ok' }, { cents: 500, card: 'busy' }), [
    { itemIdentifier: 'm-1', class: 'rate-limit', delaySeconds: 60, reason: 'bank-busy' },
  ]);
});

test('an invalid order is not tried again', async () => {
  const [item] = await items({ cents: 0 });
  assert.equal(item.class, 'non-retryable');
});

test('each failed order has its own class', async () => {
  const found = await items({ cents: 0 }, { cents: 1, card: 'ok' }, { cents: 1 });
  assert.deepEqual(found.map((item) => [item.itemIdentifier, item.class ?? item.errorType]), [
    ['m-0', 'non-retryable'],
    ['m-2', 'TimeoutError'],
  ]);
});
