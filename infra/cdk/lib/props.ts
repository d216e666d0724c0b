/**
 * The options of the construct, and their defaults.
 */

import { Duration } from 'aws-cdk-lib';
import type * as codedeploy from 'aws-cdk-lib/aws-codedeploy';
import type * as dynamodb from 'aws-cdk-lib/aws-dynamodb';
import type * as ec2 from 'aws-cdk-lib/aws-ec2';
import type * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as logs from 'aws-cdk-lib/aws-logs';
import type * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import type * as sns from 'aws-cdk-lib/aws-sns';
import type * as ssm from 'aws-cdk-lib/aws-ssm';
import { type Checked, longestMessage, neededBy, seconds } from './checks.ts';
import type { RetryPolicy } from './policy.ts';
import { standard } from './table.ts';

/** Options of `RetryQueue`. */
export interface RetryQueueProps {
  /** URL to which the function sends each message (https). Give this, `targetFunction` or `handler`. */
  readonly targetUrl?: string;
  /**
   * Whether `targetUrl` may be `http`. Bodies, headers and secrets then travel unencrypted.
   * @default - `http` is for localhost only
   */
  readonly allowHttp?: boolean;
  /**
   * A function of your own in the same stack, whose handler works on the messages. The construct
   * then makes no function. It sets the function's `RecursiveLoop` and `REQUEUE_…` variables, and
   * lets its role use the queue. The visibility timeout follows from the function's timeout. A
   * function may handle several queues if their options lead to the same variables.
   */
  readonly handler?: lambda.Function;
  /**
   * Your existing function, in any language: the function of the construct invokes it with the messages,
   * and may do that with this function, alias or version only. Give a function, an alias or a version of
   * CDK, or its name, `name:alias` or ARN. A text that is known only at deployment must be an ARN. The
   * function must not have an event source mapping for this queue; one of another account must allow
   * the construct's role too.
   */
  readonly targetFunction?: lambda.IFunction | string;
  /**
   * Most messages in one invocation of `targetFunction`.
   * @default 10
   */
  readonly messagesPerCall?: number;
  /**
   * HTTP method of each request.
   * @default 'POST'
   */
  readonly method?: 'POST' | 'PUT' | 'PATCH';
  /**
   * `Content-Type` of messages without the attribute `Body.ContentType`.
   * @default - the body decides
   */
  readonly contentType?: string;
  /**
   * How long the endpoint, or the handler, may take for one message. It must fit into `timeout`
   * without the time for settling: 5 s, at most a quarter of `timeout`. A `targetFunction` has its own
   * timeout.
   * @default - 10 s; for a handler, the library's own 30 s
   */
  readonly messageTimeout?: Duration;
  /**
   * Most requests, or invocations of `targetFunction`, at a time for one batch.
   * @default 10
   */
  readonly messageConcurrency?: number;

  /**
   * Headers of every request. Template and function configuration show them as they are. So give
   * the ARN of a secret instead of its value, and list the secret in `secrets` or `parameters`:
   * ``{ Authorization: `Bearer ${secret.secretArn}:token::` }``.
   * @default - none
   */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Message attributes to send as headers: `{ tenant: 'X-Tenant' }`.
   * @default - none
   */
  readonly attributeHeaders?: Readonly<Record<string, string>>;
  /**
   * Signs every request by Standard Webhooks. Give the ARN of a secret or parameter that holds
   * `whsec_` and 24 to 64 bytes in base64; the text itself works too, but the template shows it.
   * During a rotation, give both secrets, separated by a space.
   * @default - requests are not signed
   */
  readonly signingSecret?: string;
  /**
   * Client certificate for mutual TLS, with `clientKey`. Give the ARN of a secret or parameter that
   * holds it in PEM, or the PEM itself.
   * @default - none
   */
  readonly clientCertificate?: string;
  /**
   * Private key of `clientCertificate`, unencrypted. Give the ARN of a secret or parameter that
   * holds it in PEM; the PEM itself works too, but the template shows it.
   * @default - none
   */
  readonly clientKey?: string;
  /**
   * Secrets that the options above name. The function may read them, and decrypt with their
   * `encryptionKey`.
   * @default - none
   */
  readonly secrets?: readonly secretsmanager.ISecret[];
  /**
   * Parameters that the options above name. The function may read them, and decrypt with their
   * `encryptionKey`.
   * @default - none
   */
  readonly parameters?: readonly ssm.IParameter[];

  /**
   * The retry policy, or its JSON, or the ARN of a parameter or secret with the JSON. Then list that
   * in `parameters` or `secrets`.
   * @default - the built-in policy `standard`
   */
  readonly policy?: RetryPolicy | string;
  /**
   * Divides messages into scopes; a pause or an open circuit holds back one scope only. Give the
   * name of a message attribute, for example `tenant`, `MessageGroupId` for the message group, or a
   * JSON pointer into the body, for example `/account/id`.
   * @default - all messages are one scope
   */
  readonly scope?: string;
  /**
   * `dynamodb` makes a table that all execution environments share, so that a `rateLimit` of the
   * policy holds for all of them together. Or give a table of your own, whose partition key is the
   * text `id`, without a sort key, and whose attribute for time to live is `expires`: several
   * functions can share it, and all queues of one function must. Except with `fifo`,
   * `maxBatchingWindow` is then at least 1 s. `none`: each environment keeps its own.
   * @default 'none'
   */
  readonly sharedTable?: 'none' | 'dynamodb' | dynamodb.ITable;
  /**
   * How a message waits for its retry: as a delayed copy, or in flight until its visibility timeout
   * ends. A FIFO queue always uses `visibility`. Then every receive counts as a retry, so
   * `maxReceiveCount` must be above the policy's `maxRetries`; on a FIFO queue in batches, at least
   * twice that number.
   * @default 'copy'
   */
  readonly strategy?: 'copy' | 'visibility';
  /**
   * How a dead-lettered message reaches the dead-letter queue. `annotate`: Requeue replaces it by a copy
   * with the reason, and SQS moves the copy. `redrive`: SQS moves the unchanged message after
   * `maxReceiveCount` receives. `direct`: the function sends a copy with the reason there.
   * @default 'annotate'
   */
  readonly deadLetterMode?: 'annotate' | 'redrive' | 'direct';
  /**
   * `requeue` retries failed messages. `report`, for emergencies, only classifies and logs failures
   * and leaves the messages to SQS.
   * @default 'requeue'
   */
  readonly mode?: 'requeue' | 'report';

  /**
   * The function's code, for `architecture`.
   * @default - cargo-lambda's output `target/lambda/requeue-lambda`, in the working directory or the
   * nearest directory above it
   */
  readonly code?: lambda.Code;
  /**
   * Processor architecture of the function.
   * @default lambda.Architecture.ARM_64
   */
  readonly architecture?: lambda.Architecture;
  /**
   * Memory of the function in MB. Its share of a processor grows with it.
   * @default 256
   */
  readonly memorySize?: number;
  /**
   * How long one batch may take. Lower it in steps, each to at least a sixth of the value before:
   * a batch that still runs must not outlast the queue's visibility timeout.
   * @default - 60 s; longer if the timeout of `targetFunction` is known and needs it
   */
  readonly timeout?: Duration;
  /**
   * Most messages in one invocation. More than 10 need a `maxBatchingWindow`.
   * @default 10
   */
  readonly batchSize?: number;
  /**
   * How long Lambda gathers messages before it invokes the function.
   * @default - 0 s; with `sharedTable` 1 s, which is then the least
   */
  readonly maxBatchingWindow?: Duration;
  /**
   * Most batches at a time. The target gets at most this many times `messageConcurrency` calls at once.
   * @default 10
   */
  readonly maxConcurrency?: number;
  /**
   * Lambda's provisioned mode in place of `maxConcurrency`: the most event pollers, each with up to ten
   * batches at a time. Lambda bills every poller by the hour.
   * @default 0, no provisioned mode
   */
  readonly maximumPollers?: number;
  /**
   * Event pollers that `maximumPollers` keeps ready at all times.
   * @default 2
   */
  readonly minimumPollers?: number;
  /**
   * How long CloudWatch keeps the log lines.
   * @default logs.RetentionDays.ONE_MONTH
   */
  readonly logRetention?: logs.RetentionDays;
  /**
   * Reserves exactly `maxConcurrency` executions for the function, or ten for each of `maximumPollers`.
   * No other function can use them up, and the function never has more. Lambda refuses it if fewer than 100 executions of the
   * account would be left for all other functions.
   * @default false
   */
  readonly reserveConcurrency?: boolean;
  /**
   * Whether Lambda counts the events that the mapping polls, filters out, invokes the function with,
   * deletes and drops. CloudWatch bills these metrics as custom metrics.
   * @default false
   */
  readonly mappingMetrics?: boolean;
  /**
   * The VPC of the function. The function needs a way from there to SQS, and to AWS's services for
   * its secrets: a NAT gateway or interface endpoints.
   * @default - the function is in no VPC of yours
   */
  readonly vpc?: ec2.IVpc;
  /**
   * The subnets of `vpc` for the function.
   * @default - the private subnets
   */
  readonly vpcSubnets?: ec2.SubnetSelection;
  /**
   * The security groups of the function. They must let it reach SQS and the endpoint by HTTPS.
   * @default - a new one, which allows all outbound traffic
   */
  readonly securityGroups?: readonly ec2.ISecurityGroup[];
  /**
   * Whether X-Ray traces the function. The role may then send traces.
   * @default - no traces
   */
  readonly tracing?: lambda.Tracing;
  /**
   * Lambda accepts only code that a profile of this configuration signed. Give the signed zip in
   * `code`: CDK signs no directory.
   * @default - code needs no signature
   */
  readonly codeSigningConfig?: lambda.ICodeSigningConfig;
  /**
   * The KMS key that encrypts the function's variables. The role may decrypt with it.
   * @default - AWS manages the key
   */
  readonly environmentKmsKey?: kms.IKey;
  /**
   * The KMS key that encrypts the log group. The construct allows the key to CloudWatch Logs for
   * this log group. The policy of an imported key is yours: without that statement, the creation of
   * the log group fails.
   * @default - CloudWatch Logs manages the key
   */
  readonly logKmsKey?: kms.IKey;
  /**
   * Permissions boundary of each role that the construct makes.
   * @default - none
   */
  readonly permissionsBoundary?: iam.IManagedPolicy;
  /**
   * Path of each role that the construct makes, for example `/service/`.
   * @default '/'
   */
  readonly rolePath?: string;
  /**
   * Publishes a version of each change. CodeDeploy moves the alias `live` there in these steps, and
   * back to the version before if an invocation of the new one fails as a whole. For example
   * `codedeploy.LambdaDeploymentConfig.CANARY_10PERCENT_5MINUTES`. A function that handles several
   * queues cannot have it.
   * @default - each change is for all messages at once
   */
  readonly deployment?: codedeploy.ILambdaDeploymentConfig;

  /**
   * Prefix for the names of the queues and the log group: at most 67 letters, digits, hyphens and
   * underscores, 62 with `fifo`. The queues have fixed names because they refer to each other. A change makes two
   * new queues and leaves the old ones with their messages.
   * @default - a unique name from the stack's name and the construct's id
   */
  readonly name?: string;
  /**
   * Whether both queues are FIFO queues. Then set `deadLetterMode` to `direct`, or to `redrive` for
   * dead letters without reasons, and see `maxReceiveCount`. A change makes two new queues and leaves the old ones
   * with their messages.
   * @default false
   */
  readonly fifo?: boolean;
  /**
   * The KMS key that encrypts both queues, and the table that `sharedTable` makes.
   * @default - AWS manages the keys
   */
  readonly encryptionKey?: kms.IKey;
  /**
   * Other keys that the function may use for the queues. Before `encryptionKey` changes, give the
   * next key here. Afterwards give the previous one, until no message is left that it encrypts.
   * @default - none
   */
  readonly otherEncryptionKeys?: readonly kms.IKey[];
  /**
   * Whether the policies of both queues, and of the topic for `alarmEmail`, deny every request
   * without TLS.
   * @default false
   */
  readonly enforceTls?: boolean;
  /**
   * How long SQS hides a message after the function received it.
   * @default - AWS's rule: 6 × `timeout` + 20 s, or + `maxBatchingWindow` if that is longer
   */
  readonly visibilityTimeout?: Duration;
  /**
   * How long SQS keeps a message after its last send. Each copy is a new send; with `fifo` or
   * `strategy: 'visibility'`, a retry sends nothing. In the dead-letter queue, the 14 days also count
   * from the last send; if SQS moves a message on a FIFO queue, they count from the move. If you
   * lower the period, SQS deletes waiting messages that are older within 15 minutes, and does not
   * move them to the dead-letter queue. So first look at `ApproximateAgeOfOldestMessage`.
   * @default Duration.days(7)
   */
  readonly retentionPeriod?: Duration;
  /**
   * Receives after which SQS moves a message to the dead-letter queue. With `strategy: 'copy'`, it
   * bounds receives without a response (timeout, throttle). With `fifo` or `strategy: 'visibility'`,
   * each receive is a retry: set it above the policy's `maxRetries`; on a FIFO queue in batches, to
   * at least twice that number.
   * @default 5
   */
  readonly maxReceiveCount?: number;
  /**
   * An SNS topic. Its messages arrive in the queue as published, with up to ten attributes. SNS
   * sends a message with more, or one that it cannot deliver, to the dead-letter queue. Before you
   * change this, `fifo` or `name`, stop publishing to the topic: messages are lost during the update.
   * @default - none: producers send to the queue
   */
  readonly topic?: sns.ITopic;
  /**
   * Only messages of the topic whose attribute `operation` has one of these values come into the
   * queue.
   * @default - all messages
   */
  readonly topicOperations?: readonly string[];

  /**
   * Alarms and dashboard to create.
   * @default 'alarms-and-dashboard'
   */
  readonly monitoring?: 'alarms-and-dashboard' | 'alarms' | 'none';
  /**
   * An alarm fires when more messages than this wait to be received. Those that wait for the time of
   * their retry do not count.
   * @default 5000
   */
  readonly maxQueueDepth?: number;
  /**
   * An alarm fires when a message is older than this, all its retries included. Raise it if the
   * policy usually waits longer, for example for a daily quota.
   * @default Duration.minutes(15)
   */
  readonly maxMessageAge?: Duration;
  /**
   * E-mail address that is notified when an alarm starts and ends, by a topic of the construct. AWS
   * first sends it a mail to confirm. After a change, nobody is notified until the new address has
   * confirmed.
   * @default - none: without `alarmTopic` too, alarms change state without a notification
   */
  readonly alarmEmail?: string;
  /**
   * A topic that is notified when an alarm starts and ends. Its policy, and that of its key, must
   * allow CloudWatch to publish there.
   * @default - none
   */
  readonly alarmTopic?: sns.ITopic;
  /**
   * Address of the runbook. Every alarm's description ends with it and the alarm's section. Give
   * the address of your copy, with at most 290 characters.
   * @default 'docs/operate/runbook.md', the page in Requeue's repository
   */
  readonly runbookUrl?: string;
}

/** The options with their defaults. */
export type Completed = Checked & { readonly architecture: lambda.Architecture; readonly mostBatches: number };

export function completed(props: RetryQueueProps): Completed {
  const { handler } = props;
  // 3 s is Lambda's default timeout.
  const timeout = handler ? (handler.timeout ?? Duration.seconds(3)) : (props.timeout ?? Duration.seconds(Math.max(standard('timeout'), neededBy(props))));
  const maxBatchingWindow = window(props);
  const maxConcurrency = props.maxConcurrency ?? standard<number>('maxConcurrency');
  return {
    ...props,
    // The library cuts its default of 30 s to the time that the function's timeout leaves.
    messageTimeout: props.messageTimeout ?? Duration.seconds(handler ? Math.min(30, longestMessage(seconds(timeout))) : standard('messageTimeout')),
    messagesPerCall: props.messagesPerCall ?? standard('messagesPerCall'),
    messageConcurrency: props.messageConcurrency ?? standard('messageConcurrency'),
    architecture: props.architecture ?? lambda.Architecture.ARM_64,
    memorySize: props.memorySize ?? standard('memorySize'),
    timeout,
    batchSize: props.batchSize ?? standard('batchSize'),
    maxBatchingWindow,
    maxConcurrency,
    mostBatches: props.maximumPollers ? 10 * props.maximumPollers : maxConcurrency,
    maximumPollers: props.maximumPollers ?? standard('maximumPollers'),
    minimumPollers: props.minimumPollers ?? standard('minimumPollers'),
    visibilityTimeout: props.visibilityTimeout ?? Duration.seconds(Math.ceil(6 * seconds(timeout) + Math.max(20, seconds(maxBatchingWindow)))),
    retentionPeriod: props.retentionPeriod ?? Duration.seconds(standard('retentionPeriod')),
    maxReceiveCount: props.maxReceiveCount ?? standard('maxReceiveCount'),
    monitoring: props.monitoring ?? standard('monitoring'),
    maxQueueDepth: props.maxQueueDepth ?? standard('maxQueueDepth'),
    maxMessageAge: props.maxMessageAge ?? Duration.seconds(standard('maxMessageAge')),
    runbookUrl: props.runbookUrl ?? standard('runbookUrl'),
  };
}

/** With a table, a fuller batch asks it once for all of its messages. A FIFO queue has no window. */
function window({ maxBatchingWindow: given = Duration.seconds(standard('maxBatchingWindow')), sharedTable = 'none', fifo }: RetryQueueProps): Duration {
  const isShort = !given.isUnresolved() && seconds(given) < 1;
  return isShort && sharedTable !== 'none' && !fifo ? Duration.seconds(1) : given;
}
