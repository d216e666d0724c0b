/**
 * What the function may do.
 */

import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import type * as logs from 'aws-cdk-lib/aws-logs';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { RetryQueueProps } from './props.ts';
import { filled } from './shared.ts';

/** The queues of the construct. */
export interface Queues {
  readonly queue: sqs.Queue;
  readonly deadLetterQueue: sqs.Queue;
}

/** The policies of the role that the construct makes. */
export function inlinePolicies(props: RetryQueueProps, queues: Queues, logGroup: logs.LogGroup): Record<string, iam.PolicyDocument> {
  const secrets = props.secrets ?? [];
  const parameters = props.parameters ?? [];
  const own = statements([
    // The function's start: secrets and parameters that its settings name, and what these are encrypted with. Of a secret that is known by its name
    // only, Secrets Manager has put six characters at the end.
    ['Secrets', ['secretsmanager:GetSecretValue'], secrets.map((secret) => secret.secretFullArn ?? `${secret.secretArn}-??????`)],
    ['Parameters', ['ssm:GetParameter'], parameters.map((parameter) => parameter.parameterArn)],
    ['SecretKey', ['kms:Decrypt'], [...new Set([...secrets, ...parameters].flatMap(keyOf))]],
  ]);
  const documents = { ...further(props, queues), ...own };
  return {
    Function: functionPolicy(queues, logGroup.logGroupArn),
    ...Object.fromEntries(Object.entries(documents).map(([name, statement]) => [name, new iam.PolicyDocument({ statements: [statement] })])),
  };
}

/** What the role of a function of one's own needs besides its own: all but the log group. */
export function handlerStatements(props: RetryQueueProps, queues: Queues): iam.PolicyStatement[] {
  const { Statement: all } = filled('policies/function.json', { 'Queue.Arn': queues.queue.queueArn, 'LogGroup.Arn': '' }) as {
    Statement: { Sid: string }[];
  };
  // A role has one statement of a name, and a function perhaps several queues.
  const queue = all.filter(({ Sid }) => Sid === 'Queue').map(({ Sid: _, ...statement }) => iam.PolicyStatement.fromJson(statement));
  return [...queue, ...Object.values(further(props, queues))];
}

function functionPolicy({ queue }: Queues, logGroupArn: string): iam.PolicyDocument {
  return iam.PolicyDocument.fromJson(filled('policies/function.json', { 'Queue.Arn': queue.queueArn, 'LogGroup.Arn': logGroupArn }));
}

function further(props: RetryQueueProps, { deadLetterQueue }: Queues): Record<string, iam.PolicyStatement> {
  return statements([
    // SQS, for the function: copies, encrypted; for the poller: messages, decrypted.
    ['QueueKey', ['kms:GenerateDataKey', 'kms:Decrypt'], [keyOf(props)].flat()],
    // The function: messages that are given up.
    ['DeadLetters', ['sqs:SendMessage'], props.deadLetterMode === 'direct' ? [deadLetterQueue.queueArn] : []],
  ]);
}

/** Those that have a resource, by their names. */
function statements(table: [string, string[], string[]][]): Record<string, iam.PolicyStatement> {
  const needed = table.filter(([, , resources]) => resources.length > 0);
  return Object.fromEntries(needed.map(([name, actions, resources]) => [name, new iam.PolicyStatement({ actions, resources })]));
}

/** IParameter does not tell of the key that parameters have. */
function keyOf(owner: object): string | string[] {
  return (owner as { readonly encryptionKey?: kms.IKey }).encryptionKey?.keyArn ?? [];
}
