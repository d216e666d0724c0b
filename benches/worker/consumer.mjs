// sqs-consumer as its guide shows it: four consumers, batches of ten, undici.
import { SQSClient } from '@aws-sdk/client-sqs';
import { Consumer } from 'sqs-consumer';
import { Agent, request } from 'undici';

const { QUEUE_URL, TARGET_URL } = process.env;
const dispatcher = new Agent({ connections: 40 });
const sqs = new SQSClient({});
for (let number = 0; number < 4; number += 1) {
  const consumer = Consumer.create({
    queueUrl: QUEUE_URL,
    sqs,
    batchSize: 10,
    handleMessage: async (message) => {
      const response = await request(TARGET_URL, { method: 'POST', body: message.Body, dispatcher });
      await response.body.dump();
      if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
      return message;
    },
  });
  consumer.on('error', () => {});
  consumer.on('processing_error', () => {});
  consumer.start();
}
