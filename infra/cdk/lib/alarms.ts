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
  /** The alias that the mapping invokes. */
  readonly alias?: string;
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
  const logGroup = logGroupName(watched.function);
  const tail = (since: string) => `\`aws logs tail ${logGroup} --since ${since}\``;
  const doctor = `\`requeue doctor --function ${name}${watched.alias ? `:${watched.alias}` : ''}\``;
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
        `${description} Runbook (your copy, or in Requeue's repository): ` +
        `${watched.runbookUrl}#${section}`,
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
      'dead-letters',
      `Can wait until the morning, unless the number grows. ${deadLetterQueue.queueName} ` +
        `is not empty: Requeue or SQS gave up messages of ${queue.queueName}. Nothing ` +
        'handles them until you act, and SQS deletes each after at most 14 days. While one ' +
        'is left, further ones send no mail. First step: `requeue dlq list --queue ' +
        `${deadLetterQueue.queueUrl}\` groups them by class and reason.`,
      deadLetterQueue.metricApproximateNumberOfMessagesVisible({
        statistic: 'Maximum',
        period: Duration.minutes(1),
      }),
      0,
    ),
    // Visible messages only: delayed messages wait for the time of their retry, as they should.
    alarm(
      'QueueDepthAlarm',
      'queue-depth',
      `Look tonight. For five minutes, more than ${watched.maxQueueDepth} messages of ` +
        `${queue.queueName} have waited for ${name}. They are late, not lost. First step: ` +
        `${doctor} says whether anything stops it. If nothing does, ${tail('2m')} shows ` +
        'whether calls fail. If so, the queue drains once the downstream service recovers. ' +
        'If none fails, raise the maximum concurrency of the event source mapping.',
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
      'message-age',
      'Can wait until the morning, if messages may be late. A message of ' +
        `${queue.queueName} is older than ${watched.maxMessageAge.toSeconds()} seconds: ` +
        'calls for it fail, or Lambda has not fetched it yet. It is late, not lost. First ' +
        `step: ${doctor} says whether anything stops the function. If nothing does, ` +
        `${tail('2m')} shows class and reason of each failure.`,
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
      'error-rate',
      `Act tonight. More than 30 % of the handler calls of ${name} failed, of at least 10 ` +
        'in 15 minutes. Requeue retries their messages; non-retryable ones go to ' +
        `${deadLetterQueue.queueName} after one call. First step: ${tail('2m')} shows class ` +
        'and reason of each failure. If many are non-retryable, stop all calls (disable the ' +
        'event source mapping). Otherwise look at the downstream service.',
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
      'function-duration',
      `Can wait until the morning. For half an hour, the slowest invocations of ${name} ` +
        'have taken more than 80 % of its timeout. Near the timeout Requeue cancels calls ' +
        'that still run and retries their messages, so work is repeated; no message is lost. ' +
        `First step: ${doctor} says whether the messages of an invocation fit into the ` +
        'timeout. If not, lower the batch size or raise the message concurrency or the ' +
        'timeout.',
      watched.function.metricDuration({ statistic: 'p99', period: QUARTER }),
      0.8 * watched.timeout.toMilliseconds(),
      2,
    ),
    alarm(
      'FunctionErrorsAlarm',
      'function-errors',
      `Act tonight. Invocations of ${name} failed as a whole: it did not start, timed out ` +
        'or crashed. SQS delivers their messages again, and after a few such failures moves ' +
        `them to ${deadLetterQueue.queueName}: by default in about half an hour. First step: ` +
        `${tail('10m')} shows the error. If all invocations fail, stop all calls (disable ` +
        'the event source mapping).',
      watched.function.metricErrors({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'ThrottlesAlarm',
      'throttles',
      `Act tonight. Lambda throttled ${name}: the account or the function has no ` +
        'concurrency left. SQS delivers the messages again. Throttles may use up their ' +
        `deliveries, and then SQS moves them to ${deadLetterQueue.queueName}: by default in ` +
        `about half an hour. First step: ${doctor} compares the reserved concurrency with ` +
        'the event source mapping.',
      watched.function.metricThrottles({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'SendUnconfirmedAlarm',
      'send-unconfirmed',
      `Act at once. SQS did not confirm retries that ${name} sent. Their messages stay in ` +
        `the queue, but a few more receives move them to ${deadLetterQueue.queueName}: by ` +
        `default in about 20 minutes. First step: ${tail('10m')} shows a code beside ` +
        'settlement unconfirmed. If there are many, disable the event source mapping. ' +
        `${doctor} names missing permissions.`,
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
