/**
 * The alarms of `infra/deployment.json`.
 */

import { Duration } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import type * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';
import { fill } from './shared.ts';
import { type Alarm, TABLE } from './table.ts';

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

/** The alarms, each under its id in the template. */
export function alarms(scope: Construct, watched: Watched): cloudwatch.Alarm[] {
  const { queue, deadLetterQueue, function: made, alias } = watched;
  const values = {
    'Queue.QueueName': queue.queueName,
    'DeadLetterQueue.QueueName': deadLetterQueue.queueName,
    DeadLetterQueue: deadLetterQueue.queueUrl,
    Function: made.functionName,
    Invoked: alias === undefined ? made.functionName : `${made.functionName}:${alias}`,
    LogGroup: logGroupName(made),
    RunbookUrl: watched.runbookUrl,
    MaxQueueDepth: watched.maxQueueDepth,
    MaxMessageAgeSeconds: watched.maxMessageAge.toSeconds(),
    LongMilliseconds: 0.8 * watched.timeout.toMilliseconds(),
  };
  return Object.entries(TABLE.alarms).map(([section, entry]) => {
    const id = section.replaceAll(/(?:^|-)(.)/g, (_, letter: string) => letter.toUpperCase());
    return alarm(scope, `${id}Alarm`, entry, section, values);
  });
}

/** An alarm of the table. */
export function alarm(scope: Construct, id: string, entry: Alarm, section: string, values: Readonly<Record<string, string | number>>): cloudwatch.Alarm {
  const period = Duration.seconds(entry.period);
  const metrics: Record<string, cloudwatch.IMetric> = {};
  for (const { id = '', expression, namespace, name, dimensions, statistic } of entry.metrics) {
    if (expression === undefined) {
      const dimensionsMap = Object.fromEntries(Object.entries(dimensions).map(([key, value]) => [key, String(values[value])]));
      metrics[id] = new cloudwatch.Metric({ namespace, metricName: name, dimensionsMap, statistic, period });
    } else {
      const usingMetrics = Object.fromEntries(Object.entries(metrics).filter(([id]) => new RegExp(`\\b${id}\\b`).test(expression)));
      metrics[id] = new cloudwatch.MathExpression({ expression, usingMetrics, period });
    }
  }
  return new cloudwatch.Alarm(scope, id, {
    alarmDescription: fill(`${entry.description}${TABLE.runbook}${section}`, 'deployment.json', values),
    metric: Object.values(metrics).at(-1)!,
    threshold: typeof entry.threshold === 'string' ? (values[entry.threshold] as number) : entry.threshold,
    evaluationPeriods: entry.periods,
    comparisonOperator: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
    // A metric without events has no data.
    treatMissingData: cloudwatch.TreatMissingData.NOT_BREACHING,
  });
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
