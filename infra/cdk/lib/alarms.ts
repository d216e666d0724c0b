/**
 * The alarms of `template.yaml`.
 */

import { Duration } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import type * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';

/** The resources that the alarms watch, and two thresholds. */
export interface Watched {
  readonly queue: sqs.IQueue;
  readonly deadLetterQueue: sqs.IQueue;
  readonly function: lambda.Function;
  readonly timeout: Duration;
  readonly maxQueueDepth: number;
  readonly maxMessageAge: Duration;
  readonly runbookUrl: string;
}

const QUARTER = Duration.minutes(15);

/** The alarms, each under its id in the template. */
export function alarms(scope: Construct, watched: Watched): cloudwatch.Alarm[] {
  const { queue, deadLetterQueue } = watched;
  const name = watched.function.functionName;
  const log = `\`aws logs tail ${logGroupName(watched.function)} --since 1h\``;
  const doctor = `\`requeue doctor --function ${name}\``;
  const metric = (metricName: string, statistic: string, period: Duration) =>
    new cloudwatch.Metric({
      namespace: 'Requeue',
      metricName,
      dimensionsMap: { Service: name, Queue: queue.queueName },
      statistic,
      period,
    });
  const alarm = (
    id: string,
    section: string,
    description: string,
    watch: cloudwatch.IMetric,
    threshold: number,
    evaluationPeriods = 1,
  ) =>
    new cloudwatch.Alarm(scope, id, {
      alarmDescription:
        `${description} Read on: "${section}" in Requeue's runbook, ` +
        `${watched.runbookUrl}#${section.toLowerCase().replaceAll(' ', '-')}`,
      metric: watch,
      threshold,
      evaluationPeriods,
      comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
      // A metric without events has no data.
      treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
    });

  return [
    alarm(
      'DeadLettersAlarm',
      'Dead letters',
      `${deadLetterQueue.queueName} is not empty: Requeue or SQS gave up messages of ` +
        `${queue.queueName}. Nothing handles them until you act, and SQS deletes each after at ` +
        `most 14 days. First step: \`requeue dlq list --queue-url ${deadLetterQueue.queueUrl}\` ` +
        'groups them by class and reason.',
      deadLetterQueue.metricApproximateNumberOfMessagesVisible({
        statistic: 'Maximum',
        period: Duration.minutes(1),
      }),
      0,
    ),
    // Visible messages only: delayed messages wait for the time of their retry, as they should.
    alarm(
      'QueueDepthAlarm',
      'Queue depth',
      `For five minutes, more than ${watched.maxQueueDepth} messages of ${queue.queueName} have ` +
        `waited for a batch: ${name} does not keep up. They are late, not lost. First step: ` +
        `${log} shows failures and deferrals. If there are many, the backlog drains once the ` +
        'downstream service recovers. If there are none, raise the maximum concurrency of the ' +
        'event source mapping.',
      queue.metricApproximateNumberOfMessagesVisible({
        statistic: 'Minimum',
        period: Duration.minutes(5),
      }),
      watched.maxQueueDepth,
    ),
    // SQS counts the age from the last send. MessageAge counts from the first send, but only for
    // received messages.
    alarm(
      'MessageAgeAlarm',
      'Message age',
      `A message of ${queue.queueName} is older than ${watched.maxMessageAge.toSeconds()} ` +
        'seconds: its retries fail, or it still waits for its first receive. It is late, not ' +
        `lost. First step: ${log} shows class and reason of each failure. If nothing fails, ` +
        `${doctor} checks the event source mapping.`,
      new cloudwatch.MathExpression({
        expression: 'MAX([FILL(age, 0), FILL(waiting, 0)])',
        usingMetrics: {
          age: metric('MessageAge', 'Maximum', QUARTER),
          waiting: queue.metricApproximateAgeOfOldestMessage({ statistic: 'Maximum' }),
        },
        period: QUARTER,
      }),
      watched.maxMessageAge.toSeconds(),
    ),
    // At least 10 calls, so that one failure of two raises no alarm. An open circuit lets one call
    // through every 30 seconds, which makes more than ten in 15 minutes.
    alarm(
      'ErrorRateAlarm',
      'Error rate',
      `More than 30 % of the handler calls of ${name} failed in 15 minutes (of at least 10). ` +
        'Requeue retries their messages; non-retryable ones go to ' +
        `${deadLetterQueue.queueName}. First step: ${log} shows class and reason of each ` +
        'failure. Then look at the downstream service.',
      new cloudwatch.MathExpression({
        expression: 'IF(handled >= 10, 100 * FILL(failed, 0) / handled, 0)',
        usingMetrics: {
          failed: metric('Failed', 'Sum', QUARTER),
          handled: new cloudwatch.MathExpression({
            expression: 'SUM([FILL(failed, 0), FILL(completed, 0)])',
            usingMetrics: {
              failed: metric('Failed', 'Sum', QUARTER),
              completed: metric('Completed', 'Sum', QUARTER),
            },
            period: QUARTER,
          }),
        },
        period: QUARTER,
      }),
      30,
    ),
    // Twice 15 minutes, since a batch may last 15 minutes, and Lambda measures it when it ends.
    alarm(
      'FunctionDurationAlarm',
      'Function duration',
      `For half an hour, the slowest invocations of ${name} have taken more than 80 % of its ` +
        'timeout. Near the timeout Requeue defers messages and cancels handlers, so work is ' +
        `repeated; no message is lost. First step: ${doctor} says whether a batch fits into the ` +
        'timeout. If not, lower the batch size or raise the message concurrency or the timeout.',
      watched.function.metricDuration({ statistic: 'p99', period: QUARTER }),
      0.8 * watched.timeout.toMilliseconds(),
      2,
    ),
    alarm(
      'FunctionErrorsAlarm',
      'Function errors',
      `Invocations of ${name} failed as a whole: it did not start, timed out or crashed. SQS ` +
        'delivers their messages again after the visibility timeout, and moves them to ' +
        `${deadLetterQueue.queueName} after too many receives. First step: ${log} shows the error.`,
      watched.function.metricErrors({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'ThrottlesAlarm',
      'Throttles',
      `Lambda throttled ${name}: the account or the function has no concurrency left. SQS ` +
        'delivers the messages again after the visibility timeout. Each throttle may cost them a ' +
        `receive, and too many receives move them to ${deadLetterQueue.queueName}. First step: ` +
        `${doctor} compares the reserved concurrency with the event source mapping.`,
      watched.function.metricThrottles({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'SendUnconfirmedAlarm',
      'Send unconfirmed',
      `SQS did not confirm copies that ${name} sent. The originals stay in ${queue.queueName}, ` +
        'so nothing is lost, but each retry now uses up a receive. First step: ' +
        `${log} shows a code beside settlement unconfirmed. ${doctor} names missing permissions.`,
      metric('SendUnconfirmed', 'Sum', Duration.minutes(5)),
      0,
    ),
  ];
}

/**
 * The log group of a function. Not `logGroup`, which adds a resource to the stack if the function
 * was made without a log group.
 */
function logGroupName(made: lambda.Function): string {
  const { loggingConfig } = made.node.defaultChild as lambda.CfnFunction;
  const given = (loggingConfig as lambda.CfnFunction.LoggingConfigProperty | undefined)?.logGroup;
  return given === undefined ? `/aws/lambda/${made.functionName}` : String(given);
}
