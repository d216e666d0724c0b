/**
 * The permissions of the function.
 */

import { ArnFormat, Stack, Token } from 'aws-cdk-lib';
import type * as dynamodb from 'aws-cdk-lib/aws-dynamodb';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import type * as logs from 'aws-cdk-lib/aws-logs';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';
import type { RetryQueueProps } from './props.ts';
import { filled } from './shared.ts';

/** The queues of the construct, and the table of `sharedTable`. */
export interface Queues {
  readonly queue: sqs.Queue;
  readonly deadLetterQueue: sqs.Queue;
  readonly table: dynamodb.ITable | undefined;
}

/** The policies of the role that the construct makes. */
export function inlinePolicies(scope: Construct, props: RetryQueueProps, queues: Queues, logGroup: logs.LogGroup): Record<string, iam.PolicyDocument> {
  const secrets = props.secrets ?? [];
  const parameters = props.parameters ?? [];
  const own = statements([
    // For an alias, IAM compares the ARN with the alias; the function without it stays out of reach.
    ['TargetFunction', ['lambda:InvokeFunction', 'lambda:GetFunctionConfiguration'], targetArns(scope, props.targetFunction)],
    // The function reads these when it starts: secrets and parameters that its settings name, and
    // their keys. If a secret is known by its name only, `-??????` stands for the six characters
    // that Secrets Manager puts at the end of its ARN.
    ['Secrets', ['secretsmanager:GetSecretValue'], secrets.map((secret) => secret.secretFullArn ?? `${secret.secretArn}-??????`)],
    ['Parameters', ['ssm:GetParameter'], parameters.map((parameter) => parameter.parameterArn)],
    ['SecretKey', ['kms:Decrypt'], [...new Set([...secrets, ...parameters].flatMap(keyOf))]],
    // Lambda decrypts the variables for the function.
    ['EnvironmentKey', ['kms:Decrypt'], props.environmentKmsKey ? [props.environmentKmsKey.keyArn] : []],
  ]);
  const documents = { ...further(props, queues), ...own, ...(props.vpc && { NetworkInterfaces: networkInterfaces() }) };
  return {
    Function: functionPolicy(queues, logGroup.logGroupArn),
    ...Object.fromEntries(Object.entries(documents).map(([name, statement]) => [name, new iam.PolicyDocument({ statements: [statement] })])),
  };
}

/** The statements that the role of a user's function needs in addition: all but the log group. */
export function handlerStatements(props: RetryQueueProps, queues: Queues): iam.PolicyStatement[] {
  const { Statement: all } = filled('policies/function.json', { 'Queue.Arn': queues.queue.queueArn, 'LogGroup.Arn': '' }) as {
    Statement: { Sid: string }[];
  };
  // Without `Sid`: a name may stand once in a role, and a function may have several queues.
  const queue = all.filter(({ Sid }) => Sid === 'Queue').map(({ Sid: _, ...statement }) => iam.PolicyStatement.fromJson(statement));
  return [...queue, ...Object.values(further(props, queues))];
}

/** A name is of a function in the account and region of the stack. */
function targetArns(scope: Construct, target: RetryQueueProps['targetFunction']): string[] {
  if (target === undefined) return [];
  if (typeof target === 'object') return [target.functionArn];
  const isArn = Token.isUnresolved(target) || target.startsWith('arn:');
  return [isArn ? target : Stack.of(scope).formatArn({ service: 'lambda', resource: 'function', resourceName: target, arnFormat: ArnFormat.COLON_RESOURCE_NAME })];
}

function functionPolicy({ queue }: Queues, logGroupArn: string): iam.PolicyDocument {
  return iam.PolicyDocument.fromJson(filled('policies/function.json', { 'Queue.Arn': queue.queueArn, 'LogGroup.Arn': logGroupArn }));
}

function further(props: RetryQueueProps, { deadLetterQueue, table }: Queues): Record<string, iam.PolicyStatement> {
  const queueKeys = [keyOf(props), (props.otherEncryptionKeys ?? []).map((key) => key.keyArn)].flat();
  return statements([
    // SQS encrypts the function's copies with it, and decrypts messages for the poller.
    ['QueueKey', ['kms:GenerateDataKey', 'kms:Decrypt'], queueKeys],
    // The function reads and changes the state of a scope.
    ['Table', ['dynamodb:GetItem', 'dynamodb:UpdateItem'], table ? [table.tableArn] : []],
    // DynamoDB decrypts the key of the table for the function.
    ['TableKey', ['kms:Decrypt'], table ? [keyOf(table)].flat().filter((key) => !queueKeys.includes(key)) : []],
    // The function sends dead-lettered messages there. Its version before may have that mode.
    ['DeadLetters', ['sqs:SendMessage'], props.deadLetterMode === 'direct' || props.deployment ? [deadLetterQueue.queueArn] : []],
  ]);
}

/**
 * For Lambda, which connects the function to the VPC. The function's code cannot use it: its requests
 * have the key of the condition, and Lambda's own lack it. The resources are not known before, and a
 * shared subnet is of another account.
 */
function networkInterfaces(): iam.PolicyStatement {
  return new iam.PolicyStatement({
    actions: [
      'ec2:CreateNetworkInterface',
      'ec2:DescribeNetworkInterfaces',
      'ec2:DescribeSubnets',
      'ec2:DeleteNetworkInterface',
      'ec2:AssignPrivateIpAddresses',
      'ec2:UnassignPrivateIpAddresses',
    ],
    resources: ['*'],
    conditions: { Null: { 'lambda:SourceFunctionArn': 'true' } },
  });
}

/** The statements that have a resource, by their names. */
function statements(table: [string, string[], string[]][]): Record<string, iam.PolicyStatement> {
  const needed = table.filter(([, , resources]) => resources.length > 0);
  return Object.fromEntries(needed.map(([name, actions, resources]) => [name, new iam.PolicyStatement({ actions, resources })]));
}

/** The key of a queue, secret or parameter. The type `IParameter` lacks `encryptionKey`. */
function keyOf(owner: object): string | string[] {
  return (owner as { readonly encryptionKey?: kms.IKey }).encryptionKey?.keyArn ?? [];
}
