/**
 * An application with one queue, its outputs those of `template.yaml`:
 *
 *     npx cdk deploy -c targetUrl=https://api.example.com/orders
 *
 * `-c code=DIRECTORY` takes another build of the function than the one in `target/`, and `-c alarmEmail=ADDRESS` is told of alarms.
 */

import { App, CfnOutput, Stack } from 'aws-cdk-lib';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import { RetryQueue } from '../lib/index.ts';

const app = new App();
const stack = new Stack(app, 'Requeue', {
  description: 'A queue whose messages are POSTed to an HTTP endpoint, with patience for each kind of failure.',
});

const given = (name: string) => app.node.tryGetContext(name) as string | undefined;
const targetUrl = given('targetUrl');
if (targetUrl === undefined) {
  throw new Error('there is no targetUrl: say where the messages are POSTed, cdk deploy -c targetUrl=https://api.example.com/orders');
}
const code = given('code');

const requeue = new RetryQueue(stack, 'Orders', {
  targetUrl,
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
};
const exported = ['QueueUrl', 'QueueArn', 'DeadLetterQueueUrl', 'DeadLetterQueueArn'];
for (const [name, value] of Object.entries(outputs)) {
  if (value === undefined) continue;
  new CfnOutput(stack, name, { value, ...(exported.includes(name) && { exportName: `${stack.stackName}-${name}` }) });
}
