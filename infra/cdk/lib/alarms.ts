/**
 * What is watched: the alarms of `template.yaml`.
 */

import { Duration } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import type * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';

/** What is watched, and from when on it is too much. */
export interface Watched {
  readonly queue: sqs.IQueue;
  readonly deadLetterQueue: sqs.IQueue;
  readonly function: lambda.IFunction;
  readonly timeout: Duration;
  readonly maxQueueDepth: number;
  readonly maxMessageAge: Duration;
}

const QUARTER = Duration.minutes(15);

/** The alarms, each under its id in the template. */
export function alarms(scope: Construct, watched: Watched): cloudwatch.Alarm[] {
  const { queue, deadLetterQueue } = watched;
  const metric = (metricName: string, statistic: string, period: Duration) =>
    new cloudwatch.Metric({
      namespace: 'Requeue',
      metricName,
      dimensionsMap: { Service: watched.function.functionName, Queue: queue.queueName },
      statistic,
      period,
    });
  const alarm = (id: string, runbook: string, description: string, watch: cloudwatch.IMetric, threshold: number, evaluationPeriods = 1) =>
    new cloudwatch.Alarm(scope, id, {
      alarmDescription: `${description} Runbook: docs/operate/runbook.md#${runbook}`,
      metric: watch,
      threshold,
      evaluationPeriods,
      comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
      // What did not happen is no data.
      treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
    });

  return [
    alarm(
      'DeadLettersAlarm',
      'dead-letters',
      'Messages are in the dead-letter queue: each was given up, or received too often without an answer.',
      deadLetterQueue.metricApproximateNumberOfMessagesVisible({ statistic: 'Maximum', period: Duration.minutes(1) }),
      0,
    ),
    // Delayed messages wait for the time of their retry, as they should, and do not count.
    alarm(
      'QueueDepthAlarm',
      'queue-depth',
      'For five minutes more messages than MaxQueueDepth have waited for a batch: the function does not keep up.',
      queue.metricApproximateNumberOfMessagesVisible({ statistic: 'Minimum', period: Duration.minutes(5) }),
      watched.maxQueueDepth,
    ),
    // SQS counts from the last send, MessageAge from the first, but is told only of messages that are received.
    alarm(
      'MessageAgeAlarm',
      'message-age',
      'A message is older than MaxMessageAgeSeconds, all its retries included, or has waited as long for its first.',
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
    // One failure of two wakes nobody. An open circuit breaker lets few calls through, one each 30 seconds, but ten in 15 minutes.
    alarm(
      'ErrorRateAlarm',
      'error-rate',
      'More than 30 % of the calls of the last 15 minutes failed, of at least 10.',
      new cloudwatch.MathExpression({
        expression: 'IF(handled >= 10, 100 * FILL(failed, 0) / handled, 0)',
        usingMetrics: {
          failed: metric('Failed', 'Sum', QUARTER),
          handled: new cloudwatch.MathExpression({
            expression: 'SUM([FILL(failed, 0), FILL(completed, 0)])',
            usingMetrics: { failed: metric('Failed', 'Sum', QUARTER), completed: metric('Completed', 'Sum', QUARTER) },
            period: QUARTER,
          }),
        },
        period: QUARTER,
      }),
      30,
    ),
    // Twice 15 minutes, since a batch may last as long, and is measured when it ends.
    alarm(
      'HandlerDurationAlarm',
      'handler-duration',
      'Batches have taken more than 80 % of FunctionTimeout for half an hour: soon messages are deferred for want of time.',
      watched.function.metricDuration({ statistic: 'p99', period: QUARTER }),
      0.8 * watched.timeout.toMilliseconds(),
      2,
    ),
    alarm(
      'FunctionErrorsAlarm',
      'function-errors',
      'Invocations failed as a whole: the function did not start, timed out or crashed. Their messages come back by themselves.',
      watched.function.metricErrors({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'ThrottlesAlarm',
      'throttles',
      "Lambda throttled invocations: the account's or the function's concurrency is used up. Each throttle may cost its messages a receive.",
      watched.function.metricThrottles({ period: Duration.minutes(5) }),
      0,
    ),
    alarm(
      'SendUnconfirmedAlarm',
      'send-unconfirmed',
      'SQS did not confirm copies of messages. Nothing is lost, the originals stay, but their retries use up receives.',
      metric('SendUnconfirmed', 'Sum', Duration.minutes(5)),
      0,
    ),
  ];
}
