/**
 * The function that handles the messages: the ready Lambda, or the user's.
 */

import { Annotations, ArnFormat, RemovalPolicy, Stack, Token } from 'aws-cdk-lib';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import type { Construct } from 'constructs';
import { codeFor } from './code.ts';
import { warnIfCutOff } from './network.ts';
import { handlerStatements, inlinePolicies, type Queues } from './permissions.ts';
import type { Completed, RetryQueueProps } from './props.ts';
import { handlerSettings, readyLambdaSettings, sizeProblem } from './settings.ts';

/** The ready Lambda, with a role and a log group. */
export function readyLambda(scope: Construct, name: string, props: RetryQueueProps, options: Completed, queues: Queues): lambda.Function {
  const environment = readyLambdaSettings(scope, options, queues);
  refuse(scope, sizeProblem(scope, environment));
  const logGroupName = `/aws/lambda/${name}`;
  if (props.logKmsKey) allowLogs(scope, props.logKmsKey, logGroupName);
  const logGroup = new logs.LogGroup(scope, 'LogGroup', {
    logGroupName,
    encryptionKey: props.logKmsKey,
    retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH,
    removalPolicy: RemovalPolicy.DESTROY,
  });
  if (props.vpc) warnIfCutOff(scope, props.vpc, props.vpcSubnets, ['sqs', ...(queues.table ? (['dynamodb'] as const) : []), ...(props.targetFunction ? (['lambda'] as const) : [])]);
  const role = new iam.Role(scope, 'Role', {
    assumedBy: new iam.ServicePrincipal('lambda.amazonaws.com'),
    path: props.rolePath,
    inlinePolicies: inlinePolicies(scope, props, queues, logGroup),
  });
  return new lambda.Function(scope, 'Function', {
    description:
      'Hands each message of the queue to its target and retries it by class of failure.',
    code: codeFor(options.architecture, props.code, props.codeSigningConfig !== undefined),
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
    environment,
    environmentEncryption: props.environmentKmsKey,
    codeSigningConfig: props.codeSigningConfig,
    tracing: props.tracing,
    vpc: props.vpc,
    vpcSubnets: props.vpcSubnets,
    securityGroups: props.securityGroups && [...props.securityGroups],
    reservedConcurrentExecutions: props.reserveConcurrency ? options.mostBatches : undefined,
  });
}

/**
 * Allows the key to CloudWatch Logs, for this log group. By the group's name: its ARN would make key
 * and group refer to each other. Source: CloudWatch Logs user guide, "Encrypt log data in CloudWatch
 * Logs using AWS Key Management Service".
 */
function allowLogs(scope: Construct, key: kms.IKey, logGroupName: string): void {
  const stack = Stack.of(scope);
  const arn = stack.formatArn({ service: 'logs', resource: 'log-group', resourceName: logGroupName, arnFormat: ArnFormat.COLON_RESOURCE_NAME });
  key.addToResourcePolicy(
    new iam.PolicyStatement({
      principals: [new iam.ServicePrincipal(`logs.${stack.region}.${stack.urlSuffix}`)],
      actions: ['kms:Encrypt', 'kms:Decrypt', 'kms:ReEncrypt*', 'kms:GenerateDataKey*', 'kms:Describe*'],
      resources: ['*'],
      conditions: { ArnEquals: { 'kms:EncryptionContext:aws:logs:arn': arn } },
    }),
  );
}

/** A function with queues of constructs. */
interface Wired {
  /** The variables that the constructs have set. A construct for another queue must not change them. */
  readonly settings: Readonly<Record<string, string>>;
  /** The sum for all its queues. */
  readonly mostBatches: number;
  readonly isGradual: boolean;
}

const WIRED = new WeakMap<lambda.Function, Wired>();

/** Lets the user's function handle the messages. */
export function wire(scope: Construct, handler: lambda.Function, props: RetryQueueProps, options: Completed, queues: Queues): lambda.Function {
  const settings: Record<string, string> = {
    ...handlerSettings(scope, options, queues),
    ...(props.messageTimeout && { REQUEUE_TIMEOUT_SECONDS: String(props.messageTimeout.toSeconds({ integral: false })) }),
  };
  const before = WIRED.get(handler);
  const wired = { settings, mostBatches: (before?.mostBatches ?? 0) + options.mostBatches, isGradual: props.deployment !== undefined };
  const resource = handler.node.defaultChild as lambda.CfnFunction;
  refuse(scope, (before && misfit(before, wired)) ?? shortage(wired.mostBatches, resource.reservedConcurrentExecutions) ?? sizeProblem(scope, settings));
  WIRED.set(handler, wired);
  for (const [name, value] of Object.entries(settings)) handler.addEnvironment(name, value);
  if (queues.table) handler.addEnvironment('REQUEUE_MAX_ENVIRONMENTS', String(wired.mostBatches));
  // As for the ready Lambda.
  resource.recursiveLoop = lambda.RecursiveLoop.ALLOW;
  const statements = handlerStatements(props, queues);
  for (const statement of statements) handler.addToRolePolicy(statement);
  if (isImmutable(handler.role)) warnOfMissing(scope, statements);
  return handler;
}

/** CDK exports no such class, and says that it has added a statement to such a role. */
function isImmutable(role: iam.IRole | undefined): boolean {
  return (role?.constructor as { PROPERTY_INJECTION_ID?: string } | undefined)?.PROPERTY_INJECTION_ID === 'aws-cdk-lib.aws-iam.ImmutableRole';
}

function warnOfMissing(scope: Construct, statements: iam.PolicyStatement[]): void {
  const missing = Stack.of(scope).resolve(statements.map((statement) => statement.toStatementJson()));
  Annotations.of(scope).addWarningV2(
    'requeue:immutableRole',
    "the handler's role is imported, and CDK adds no permissions to it, so the function could neither receive messages nor retry them: " +
      `add these statements to the role yourself: ${JSON.stringify(missing)}`,
  );
}

function refuse(scope: Construct, problem: string | undefined): void {
  if (problem !== undefined) throw new Error(`RetryQueue ${scope.node.path} cannot work:\n  ${problem}`);
}

function misfit(before: Wired, wired: Wired): string | undefined {
  const names = new Set([...Object.keys(before.settings), ...Object.keys(wired.settings)]);
  const differ = [...names].filter((name) => before.settings[name] !== wired.settings[name]);
  if (differ.includes('REQUEUE_TABLE')) {
    return (
      "the handler's queues would have different tables, and a function has one: give sharedTable the property table of the other construct, " +
      'or each queue a function of its own'
    );
  }
  if (differ.length > 0) {
    return (
      `${differ.join(' and ')} would differ between the handler's queues, ` +
      'and a function has one value for all its queues: give both queues the same options, or each a function of its own'
    );
  }
  if (before.isGradual || wired.isGradual) {
    return 'deployment is for a function of one queue, and handler has another: give each queue a function of its own, or leave deployment out';
  }
  return undefined;
}

function shortage(needed: number, reserved: number | undefined): string | undefined {
  if (reserved === undefined || Token.isUnresolved(reserved) || Token.isUnresolved(needed) || needed <= reserved) return undefined;
  return (
    `the handler's queues run up to ${needed} batches at a time, and the handler reserves ${reserved} executions: Lambda ` +
    `would throttle the others, and throttles may cost messages all their receives: reserve at least ${needed}, or lower maxConcurrency`
  );
}
