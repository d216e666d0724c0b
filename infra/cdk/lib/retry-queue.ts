/**
 * The construct: the same resources as `template.yaml`, with typed options.
 */

import { Duration, Names, RemovalPolicy, Stack } from 'aws-cdk-lib';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import type * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sqs from 'aws-cdk-lib/aws-sqs';
import type * as ssm from 'aws-cdk-lib/aws-ssm';
import { Construct } from 'constructs';
import { type Checked, problemsOf } from './checks.ts';
import { builtCode } from './code.ts';
import type { RetryPolicy } from './policy.ts';

/** Options of {@link RetryQueue}. */
export interface RetryQueueProps {
  /** Where each message is POSTed (https). */
  readonly targetUrl: string;
  /**
   * The HTTP method.
   * @default 'POST'
   */
  readonly method?: 'POST' | 'PUT' | 'PATCH';
  /**
   * `Content-Type` of messages without the attribute `Body.ContentType`.
   * @default - by the look of the body
   */
  readonly contentType?: string;
  /**
   * How long the endpoint may take for one message. It must fit into `timeout`, of which 5 s, but at most a quarter, are kept for settling.
   * @default Duration.seconds(10)
   */
  readonly messageTimeout?: Duration;
  /**
   * Most messages of one batch that are on their way to the endpoint at a time.
   * @default 10
   */
  readonly messageConcurrency?: number;

  /**
   * Headers of every request. They stand in the template and in the function's configuration as they are, so let the ARN of a secret stand in
   * place of a secret word: ``{ Authorization: `Bearer ${secret.secretArn}:token::` }``, and name it in `secrets` or `parameters`.
   * @default - none
   */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Message attributes that go along as headers: `{ tenant: 'X-Tenant' }`.
   * @default - none
   */
  readonly attributeHeaders?: Readonly<Record<string, string>>;
  /**
   * Signs every request as Standard Webhooks has it: the ARN of a secret or parameter that holds `whsec_` and 24 to 64 bytes in base64, or, less well,
   * that itself. While one secret replaces another both, separated by a space.
   * @default - not signed
   */
  readonly signingSecret?: string;
  /**
   * Secrets that `headers` and `signingSecret` name. The function may read them, and decrypt with the keys that they know of.
   * @default - none
   */
  readonly secrets?: readonly secretsmanager.ISecret[];
  /**
   * Parameters that `headers` and `signingSecret` name. The function may read them, and decrypt with the keys that they know of.
   * @default - none
   */
  readonly parameters?: readonly ssm.IParameter[];

  /**
   * The retry policy, or its JSON.
   * @default - the built-in policy `standard`
   */
  readonly policy?: RetryPolicy | string;
  /**
   * Which messages are paused together when the endpoint asks for a pause or is down: those with the same value of a message attribute, for example
   * `tenant`, or at a JSON pointer into the body, for example `/account/id`.
   * @default - all
   */
  readonly scope?: string;
  /**
   * How a message that is given up reaches the dead-letter queue: as a copy that says why, moved by SQS (annotate); as it is, handled again on each
   * receive until SQS moves it (redrive); as such a copy that the function sends there (direct).
   * @default 'annotate'
   */
  readonly deadLetterMode?: 'annotate' | 'redrive' | 'direct';
  /**
   * What is done about failures. In an emergency, `report` only sorts and logs them and leaves each to SQS.
   * @default 'requeue'
   */
  readonly mode?: 'requeue' | 'report';

  /**
   * The function's code, for `architecture`.
   * @default - `target/lambda/requeue-lambda`, where cargo-lambda leaves it, in the working directory or the nearest directory above it
   */
  readonly code?: lambda.Code;
  /** @default lambda.Architecture.ARM_64 */
  readonly architecture?: lambda.Architecture;
  /**
   * Memory of the function in MB; its share of a processor grows with it.
   * @default 256
   */
  readonly memorySize?: number;
  /**
   * How long one batch may take.
   * @default Duration.seconds(60)
   */
  readonly timeout?: Duration;
  /**
   * Most messages in one invocation. More than 10 need `maxBatchingWindow`.
   * @default 10
   */
  readonly batchSize?: number;
  /**
   * How long SQS messages are gathered before the function is invoked.
   * @default Duration.seconds(0)
   */
  readonly maxBatchingWindow?: Duration;
  /**
   * Most batches at a time; the endpoint sees at most this many times `messageConcurrency`.
   * @default 10
   */
  readonly maxConcurrency?: number;
  /** @default logs.RetentionDays.ONE_MONTH */
  readonly logRetention?: logs.RetentionDays;

  /**
   * What the names of the queues and of the log group begin with, at most 67 letters, digits, hyphens and underscores. The queues are named because each names the
   * other.
   * @default - a unique one of the stack's name and the construct's id
   */
  readonly name?: string;
  /**
   * The key with which the queues are encrypted.
   * @default - keys of SQS
   */
  readonly encryptionKey?: kms.IKey;
  /**
   * For how long a message that is handed to the function is hidden.
   * @default - 6 × `timeout` + 20 s, or + `maxBatchingWindow` where that is longer: AWS's rule
   */
  readonly visibilityTimeout?: Duration;
  /**
   * How long a message may wait in a backlog. Every retry begins it anew. The dead-letter queue, which counts from the same moment, keeps messages for 14 days.
   * @default Duration.days(7)
   */
  readonly retentionPeriod?: Duration;
  /**
   * After so many deliveries that ended without an answer SQS moves a message to the dead-letter queue.
   * @default 5
   */
  readonly maxReceiveCount?: number;
}

/**
 * A queue whose messages are POSTed to an HTTP endpoint, with patience for each kind of failure, and its dead-letter queue.
 *
 * ```ts
 * const orders = new RetryQueue(this, 'Orders', { targetUrl: 'https://api.example.com/orders' });
 * orders.queue.grantSendMessages(producer);
 * ```
 */
export class RetryQueue extends Construct {
  /** Messages are sent here. */
  readonly queue: sqs.Queue;
  /** Messages that were given up. */
  readonly deadLetterQueue: sqs.Queue;
  /** What calls the endpoint. */
  readonly function: lambda.Function;
  /** The function's role. */
  readonly role: iam.Role;
  /** The function's log lines. */
  readonly logGroup: logs.LogGroup;

  constructor(scope: Construct, id: string, props: RetryQueueProps) {
    super(scope, id);
    const options = withDefaults(props);
    const problems = problemsOf(options);
    if (problems.length > 0) {
      throw new Error(`RetryQueue ${this.node.path} cannot work:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    }

    const name = props.name ?? Names.uniqueResourceName(this, { maxLength: 67, separator: '-' });
    const queueName = `${name}-messages`;
    const encryption = {
      encryption: props.encryptionKey ? sqs.QueueEncryption.KMS : sqs.QueueEncryption.SQS_MANAGED,
      ...(props.encryptionKey && { encryptionMasterKey: props.encryptionKey }),
    };
    const source = Stack.of(this).formatArn({ service: 'sqs', resource: queueName });
    this.deadLetterQueue = new sqs.Queue(this, 'DeadLetterQueue', {
      ...encryption,
      queueName: `${name}-dead-letters`,
      retentionPeriod: Duration.days(14),
      redriveAllowPolicy: { sourceQueues: [sqs.Queue.fromQueueArn(this, 'Source', source)] },
    });
    this.queue = new sqs.Queue(this, 'Queue', {
      ...encryption,
      queueName,
      visibilityTimeout: options.visibilityTimeout,
      retentionPeriod: options.retentionPeriod,
      deadLetterQueue: { queue: this.deadLetterQueue, maxReceiveCount: options.maxReceiveCount },
    });
    this.logGroup = new logs.LogGroup(this, 'LogGroup', {
      logGroupName: `/aws/lambda/${name}`,
      retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH,
      removalPolicy: RemovalPolicy.DESTROY,
    });

    this.role = new iam.Role(this, 'Role', {
      assumedBy: new iam.ServicePrincipal('lambda.amazonaws.com'),
      inlinePolicies: this.policies(props),
    });
    this.function = new lambda.Function(this, 'Function', {
      description: 'POSTs each message of the queue and retries each kind of failure in its own time.',
      code: props.code ?? builtCode(options.architecture),
      handler: 'bootstrap',
      runtime: lambda.Runtime.PROVIDED_AL2023,
      architecture: options.architecture,
      memorySize: options.memorySize,
      timeout: options.timeout,
      role: this.role,
      // A retry is a message sent to the function's own queue. Without this Lambda takes it for a runaway loop after about 16 of them and sends the
      // message to the dead-letter queue; the loop is bounded by the policy instead.
      recursiveLoop: lambda.RecursiveLoop.ALLOW,
      logGroup: this.logGroup,
      loggingFormat: lambda.LoggingFormat.JSON,
      applicationLogLevelV2: lambda.ApplicationLogLevel.INFO,
      systemLogLevelV2: lambda.SystemLogLevel.WARN,
      environment: this.settings(props, options),
    });
    // Not an SqsEventSource, which would widen the role.
    new lambda.EventSourceMapping(this, 'Messages', {
      target: this.function,
      eventSourceArn: this.queue.queueArn,
      batchSize: options.batchSize,
      maxBatchingWindow: options.maxBatchingWindow,
      // Without it Lambda takes every answer for success and deletes the messages that failed.
      reportBatchItemFailures: true,
      maxConcurrency: options.maxConcurrency,
    });
  }

  /** What is optional reaches the function only where it differs from the function's own default. */
  private settings(props: RetryQueueProps, options: Defaulted): Record<string, string> {
    const json = (value: object) => Stack.of(this).toJsonString(value);
    const settings: Record<string, string | undefined> = {
      REQUEUE_TARGET_URL: props.targetUrl,
      REQUEUE_METHOD: props.method === 'POST' ? undefined : props.method,
      REQUEUE_CONTENT_TYPE: props.contentType,
      REQUEUE_TIMEOUT_SECONDS: String(options.messageTimeout.toSeconds({ integral: false })),
      REQUEUE_CONCURRENCY: options.messageConcurrency === 10 ? undefined : String(options.messageConcurrency),
      REQUEUE_HEADERS: props.headers && json(props.headers),
      REQUEUE_ATTRIBUTE_HEADERS:
        props.attributeHeaders && Object.entries(props.attributeHeaders).map((pair) => pair.join('=')).join(','),
      REQUEUE_SIGNING_SECRET: props.signingSecret,
      REQUEUE_POLICY: typeof props.policy === 'object' ? json(props.policy) : props.policy,
      REQUEUE_SCOPE: props.scope,
      REQUEUE_DEAD_LETTER: props.deadLetterMode ?? 'annotate',
      REQUEUE_DEAD_LETTER_QUEUE_URL: props.deadLetterMode === 'direct' ? this.deadLetterQueue.queueUrl : undefined,
      REQUEUE_MODE: props.mode === 'requeue' ? undefined : props.mode,
      REQUEUE_RECURSIVE_LOOP: 'Allow',
    };
    return Object.fromEntries(Object.entries(settings).filter((entry): entry is [string, string] => entry[1] !== undefined));
  }
}

type Defaulted = Checked & { readonly architecture: lambda.Architecture };

function withDefaults(props: RetryQueueProps): Defaulted {
  const timeout = props.timeout ?? Duration.seconds(60);
  const maxBatchingWindow = props.maxBatchingWindow ?? Duration.seconds(0);
  return {
    ...props,
    messageTimeout: props.messageTimeout ?? Duration.seconds(10),
    messageConcurrency: props.messageConcurrency ?? 10,
    architecture: props.architecture ?? lambda.Architecture.ARM_64,
    memorySize: props.memorySize ?? 256,
    timeout,
    batchSize: props.batchSize ?? 10,
    maxBatchingWindow,
    maxConcurrency: props.maxConcurrency ?? 10,
    visibilityTimeout:
      props.visibilityTimeout ?? Duration.seconds(6 * timeout.toSeconds() + Math.max(20, maxBatchingWindow.toSeconds())),
    retentionPeriod: props.retentionPeriod ?? Duration.days(7),
    maxReceiveCount: props.maxReceiveCount ?? 5,
  };
}
