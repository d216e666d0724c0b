/**
 * The function that handles the messages: the ready Lambda, or the user's.
 */

import { RemovalPolicy } from 'aws-cdk-lib';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import type { Construct } from 'constructs';
import { codeFor } from './code.ts';
import { handlerStatements, inlinePolicies, type Queues } from './permissions.ts';
import type { Completed, RetryQueueProps } from './props.ts';
import { handlerSettings, readyLambdaSettings } from './settings.ts';

/** The ready Lambda, with a role and a log group. */
export function readyLambda(scope: Construct, name: string, props: RetryQueueProps, options: Completed, queues: Queues): lambda.Function {
  const logGroup = new logs.LogGroup(scope, 'LogGroup', {
    logGroupName: `/aws/lambda/${name}`,
    retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH,
    removalPolicy: RemovalPolicy.DESTROY,
  });
  const role = new iam.Role(scope, 'Role', {
    assumedBy: new iam.ServicePrincipal('lambda.amazonaws.com'),
    inlinePolicies: inlinePolicies(props, queues, logGroup),
  });
  return new lambda.Function(scope, 'Function', {
    description:
      'Sends each message of the queue to an HTTP endpoint and retries it by class of failure.',
    code: codeFor(options.architecture, props.code),
    handler: 'bootstrap',
    runtime: lambda.Runtime.PROVIDED_AL2023,
    architecture: options.architecture,
    memorySize: options.memorySize,
    timeout: options.timeout,
    role,
    // A retry is a message that the function sends to its own queue. By default, Lambda stops such
    // a loop after about 16 rounds and sends the message to the dead-letter queue. The retry policy
    // bounds the loop instead.
    recursiveLoop: lambda.RecursiveLoop.ALLOW,
    logGroup,
    loggingFormat: lambda.LoggingFormat.JSON,
    applicationLogLevelV2: lambda.ApplicationLogLevel.INFO,
    systemLogLevelV2: lambda.SystemLogLevel.WARN,
    environment: readyLambdaSettings(scope, options, queues.deadLetterQueue),
  });
}

/**
 * The variables that constructs have set on each function. A construct for another queue must not
 * change them.
 */
const SET = new WeakMap<lambda.Function, Record<string, string>>();

/** Lets the user's function handle the messages. */
export function wire(scope: Construct, handler: lambda.Function, props: RetryQueueProps, options: Completed, queues: Queues): lambda.Function {
  const settings: Record<string, string> = {
    ...handlerSettings(scope, options, queues.deadLetterQueue),
    ...(props.messageTimeout && { REQUEUE_TIMEOUT_SECONDS: String(props.messageTimeout.toSeconds({ integral: false })) }),
  };
  const before = SET.get(handler) ?? settings;
  const differ = [...new Set([...Object.keys(before), ...Object.keys(settings)])].filter((name) => before[name] !== settings[name]);
  if (differ.length > 0) {
    throw new Error(
      `RetryQueue ${scope.node.path} cannot work:\n  ${differ.join(' and ')} would differ between the handler's queues, ` +
        'and a function has one value for all its queues: give both queues the same options, or each a function of its own',
    );
  }
  SET.set(handler, settings);
  for (const [name, value] of Object.entries(settings)) handler.addEnvironment(name, value);
  // As for the ready Lambda.
  (handler.node.defaultChild as lambda.CfnFunction).recursiveLoop = lambda.RecursiveLoop.ALLOW;
  for (const statement of handlerStatements(props, queues)) handler.addToRolePolicy(statement);
  return handler;
}
