/**
 * An application with one queue. Its outputs are those of `template.yaml`:
 *
 *     npx cdk deploy -c targetUrl=https://api.example.com/orders
 *
 * `-c targetFunction=NAME`, instead of the URL, invokes an existing function. `-c code=DIRECTORY` names
 * another build of the function than the one in `target/`.
 * `-c alarmEmail=ADDRESS` is notified of alarms.
 */

import { App, CfnOutput, Stack } from 'aws-cdk-lib';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import { RetryQueue } from '../lib/index.ts';

const app = new App();
const stack = new Stack(app, 'Requeue', {
  description: 'An SQS queue and a function that hands each message to its target and retries it by class of failure.',
});

const given = (name: string) => app.node.tryGetContext(name) as string | undefined;
const targetUrl = given('targetUrl');
const targetFunction = given('targetFunction');
if (targetUrl === undefined && targetFunction === undefined) {
  throw new Error(
    'targetUrl is missing: give the URL for each message, cdk deploy -c targetUrl=https://api.example.com/orders, or ' +
      'targetFunction, the name of an existing function',
  );
}
const code = given('code');

const requeue = new RetryQueue(stack, 'Orders', {
  targetUrl,
  targetFunction,
  code: code === undefined ? undefined : lambda.Code.fromAsset(code),
  alarmEmail: given('alarmEmail'),
});

const { queue, deadLetterQueue, logGroup, dashboard } = requeue;
const outputs = {
  QueueUrl: queue.queueUrl,
  QueueArn: queue.queueArn,
  DeadLetterQueueUrl: deadLetterQueue.queueUrl,
  DeadLetterQueueArn: deadLetterQueue.queueArn,
  FunctionName: requeue.function.functionName,
  FunctionArn: requeue.function.functionArn,
  LogGroupName: logGroup.logGroupName,
  DashboardUrl:
    dashboard &&
    `https://${stack.region}.console.aws.amazon.com/cloudwatch/home?region=${stack.region}#dashboards/dashboard/${dashboard.ref}`,
  AlarmTopicArn: requeue.alarmTopic?.topicArn,
  TableName: requeue.table?.tableName,
};
const exported = ['QueueUrl', 'QueueArn', 'DeadLetterQueueUrl', 'DeadLetterQueueArn'];
for (const [name, value] of Object.entries(outputs)) {
  if (value === undefined) continue;
  new CfnOutput(stack, name, { value, ...(exported.includes(name) && { exportName: `${stack.stackName}-${name}` }) });
}
