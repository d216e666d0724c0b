/**
 * The construct: the same resources as `template.yaml`.
 */

import { Duration, Names, RemovalPolicy, Stack } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import * as sns from 'aws-cdk-lib/aws-sns';
import { EmailSubscription, SqsSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import * as sqs from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { alarms } from './alarms.ts';
import { problemsOf } from './checks.ts';
import { builtCode } from './code.ts';
import { type Completed, completed, type RetryQueueProps } from './props.ts';
import { filled } from './shared.ts';

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
    const options = completed(props);
    const problems = problemsOf(options);
    if (problems.length > 0) {
      throw new Error(`RetryQueue ${this.node.path} cannot work:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    }

    const name = props.name ?? Names.uniqueResourceName(this, { maxLength: 67, separator: '-' });
    const queueName = `${name}-messages`;
    const encryption = {
      encryption: props.encryptionKey ? sqs.QueueEncryption.KMS : sqs.QueueEncryption.SQS_MANAGED,
      encryptionMasterKey: props.encryptionKey,
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
      inlinePolicies: this.inlinePolicies(props),
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
    this.alarmTopic = props.alarmEmail === undefined ? undefined : this.makeAlarmTopic(props.alarmEmail);
    this.alarms =
      options.monitoring === 'none'
        ? []
        : alarms(this, { ...options, queue: this.queue, deadLetterQueue: this.deadLetterQueue, function: this.function });
    const told = [this.alarmTopic, props.alarmTopic].filter((topic) => topic !== undefined).map((topic) => new SnsAction(topic));
    for (const alarm of this.alarms) {
      alarm.addAlarmAction(...told);
      alarm.addOkAction(...told);
    }
    this.dashboard = options.monitoring === 'alarms-and-dashboard' ? this.makeDashboard() : undefined;
  }

  private inlinePolicies(props: RetryQueueProps): Record<string, iam.PolicyDocument> {
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
        filterPolicy: operations.length > 0 ? { operation: sns.SubscriptionFilter.stringFilter({ allowlist: [...operations] }) } : undefined,
      }),
    );
    // What SNS cannot deliver before it may send to the dead-letter queue is lost.
    subscription?.node.addDependency(this.deadLetterQueue);
  }

  private makeAlarmTopic(address: string): sns.Topic {
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

  private makeDashboard(): cloudwatch.CfnDashboard {
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
  private settings(props: RetryQueueProps, options: Completed): Record<string, string> {
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
      REQUEUE_CLIENT_CERTIFICATE: props.clientCertificate,
      REQUEUE_CLIENT_KEY: props.clientKey,
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
