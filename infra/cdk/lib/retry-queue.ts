/**
 * The construct: the same resources as `template.yaml`, with typed options.
 */

import { Duration, Names, RemovalPolicy, Stack } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import type * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import { EmailSubscription, SqsSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import * as sqs from 'aws-cdk-lib/aws-sqs';
import type * as ssm from 'aws-cdk-lib/aws-ssm';
import { Construct } from 'constructs';
import { alarms } from './alarms.ts';
import { type Checked, problemsOf } from './checks.ts';
import { builtCode } from './code.ts';
import type { RetryPolicy } from './policy.ts';
import { filled } from './shared.ts';

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
  /**
   * A topic whose messages come into the queue as they were published, attributes included. SQS takes ten of these: what has more, or cannot be
   * delivered for another reason, goes to the dead-letter queue.
   * @default - none: messages are sent to the queue
   */
  readonly topic?: sns.ITopic;
  /**
   * Values of the message attribute `operation` for which the topic's messages come into the queue.
   * @default - all messages
   */
  readonly topicOperations?: readonly string[];

  /**
   * What watches over it.
   * @default 'alarms-and-dashboard'
   */
  readonly monitoring?: 'alarms-and-dashboard' | 'alarms' | 'none';
  /**
   * Messages that may wait for a batch before an alarm. Those that wait for the time of their retry do not count.
   * @default 5000
   */
  readonly maxQueueDepth?: number;
  /**
   * How old a message may get, all its retries included, before an alarm. Raise it where the policy waits longer in the ordinary course.
   * @default Duration.minutes(15)
   */
  readonly maxMessageAge?: Duration;
  /**
   * Address that is told of alarms and of their end, by a topic of the construct. It receives a mail and has to confirm.
   * @default - none
   */
  readonly alarmEmail?: string;
  /**
   * A topic that is told of alarms and of their end. CloudWatch must be allowed to publish there.
   * @default - none
   */
  readonly alarmTopic?: sns.ITopic;
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
  /** The function's log lines, and in them its metrics. */
  readonly logGroup: logs.LogGroup;
  /** The alarms, unless `monitoring` is `none`. */
  readonly alarms: readonly cloudwatch.Alarm[];
  /** The topic that tells `alarmEmail` of alarms. */
  readonly alarmTopic: sns.Topic | undefined;
  /** The dashboard, if `monitoring` has one. */
  readonly dashboard: cloudwatch.CfnDashboard | undefined;

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

    if (props.topic) this.subscribe(props.topic, props.topicOperations ?? []);
    this.alarmTopic = props.alarmEmail === undefined ? undefined : this.mailing(props.alarmEmail);
    this.alarms =
      options.monitoring === 'none'
        ? []
        : alarms(this, { ...options, queue: this.queue, deadLetterQueue: this.deadLetterQueue, function: this.function });
    const told = [this.alarmTopic, props.alarmTopic].filter((topic) => topic !== undefined).map((topic) => new SnsAction(topic));
    for (const alarm of this.alarms) {
      alarm.addAlarmAction(...told);
      alarm.addOkAction(...told);
    }
    this.dashboard = options.monitoring === 'alarms-and-dashboard' ? this.shownOn() : undefined;
  }

  private policies(props: RetryQueueProps): Record<string, iam.PolicyDocument> {
    const values = { 'Queue.Arn': this.queue.queueArn, 'LogGroup.Arn': this.logGroup.logGroupArn };
    // IParameter does not tell of the key that parameters have.
    const keyOf = (owner: object) => (owner as { readonly encryptionKey?: kms.IKey }).encryptionKey?.keyArn ?? [];
    const secrets = props.secrets ?? [];
    const parameters = props.parameters ?? [];
    const further: [string, string[], string[]][] = [
      // SQS, for the function: copies, encrypted; for the poller: messages, decrypted.
      ['QueueKey', ['kms:GenerateDataKey', 'kms:Decrypt'], [keyOf(props)].flat()],
      // The function: messages that are given up.
      ['DeadLetters', ['sqs:SendMessage'], props.deadLetterMode === 'direct' ? [this.deadLetterQueue.queueArn] : []],
      // The function's start: secrets and parameters that its settings name, and what these are encrypted with. Of a secret that is known by its name
      // only, Secrets Manager has put six characters at the end.
      ['Secrets', ['secretsmanager:GetSecretValue'], secrets.map((secret) => secret.secretFullArn ?? `${secret.secretArn}-??????`)],
      ['Parameters', ['ssm:GetParameter'], parameters.map((parameter) => parameter.parameterArn)],
      ['SecretKey', ['kms:Decrypt'], [...new Set([...secrets, ...parameters].flatMap(keyOf))]],
    ];
    const granted = further.filter(([, , resources]) => resources.length > 0).map(([name, actions, resources]) => [
      name,
      new iam.PolicyDocument({ statements: [new iam.PolicyStatement({ actions, resources })] }),
    ]);
    return { Function: iam.PolicyDocument.fromJson(filled('policies/function.json', values)), ...Object.fromEntries(granted) };
  }

  private subscribe(topic: sns.ITopic, operations: readonly string[]): void {
    const subscription = topic.addSubscription(
      new SqsSubscription(this.queue, {
        // Otherwise SNS wraps each body into JSON of its own, and keeps the attributes in there.
        rawMessageDelivery: true,
        deadLetterQueue: this.deadLetterQueue,
        ...(operations.length > 0 && { filterPolicy: { operation: sns.SubscriptionFilter.stringFilter({ allowlist: [...operations] }) } }),
      }),
    );
    // What SNS cannot deliver before it may send to the dead-letter queue is lost.
    subscription?.node.addDependency(this.deadLetterQueue);
  }

  private mailing(address: string): sns.Topic {
    // Not encrypted with KMS: an alarm holds nothing of a message, and a mistake in the key's policy would silence the alarms.
    const topic = new sns.Topic(this, 'AlarmTopic');
    topic.addSubscription(new EmailSubscription(address));
    topic.addToResourcePolicy(
      new iam.PolicyStatement({
        principals: [new iam.ServicePrincipal('cloudwatch.amazonaws.com')],
        actions: ['sns:Publish'],
        resources: [topic.topicArn],
        conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(this).account } },
      }),
    );
    return topic;
  }

  private shownOn(): cloudwatch.CfnDashboard {
    const values = {
      'AWS::Region': Stack.of(this).region,
      Function: this.function.functionName,
      'Queue.QueueName': this.queue.queueName,
      'DeadLetterQueue.QueueName': this.deadLetterQueue.queueName,
      ...Object.fromEntries(this.alarms.map((alarm) => [`${alarm.node.id}.Arn`, alarm.alarmArn])),
    };
    return new cloudwatch.CfnDashboard(this, 'Dashboard', { dashboardBody: Stack.of(this).toJsonString(filled('dashboard.json', values)) });
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

type Defaulted = Checked & {
  readonly architecture: lambda.Architecture;
};

function withDefaults(props: RetryQueueProps): Defaulted {
  const timeout = props.timeout ?? Duration.seconds(60);
  const maxBatchingWindow = props.maxBatchingWindow ?? Duration.seconds(0);
  const visible = 6 * (timeout.isUnresolved() ? 900 : timeout.toSeconds()) + (maxBatchingWindow.isUnresolved() ? 300 : Math.max(20, maxBatchingWindow.toSeconds()));
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
    visibilityTimeout: props.visibilityTimeout ?? Duration.seconds(visible),
    retentionPeriod: props.retentionPeriod ?? Duration.days(7),
    maxReceiveCount: props.maxReceiveCount ?? 5,
    monitoring: props.monitoring ?? 'alarms-and-dashboard',
    maxQueueDepth: props.maxQueueDepth ?? 5000,
    maxMessageAge: props.maxMessageAge ?? Duration.minutes(15),
  };
}
