/**
 * The construct: the same resources as `template.yaml`.
 */

import { Duration, Names, RemovalPolicy, Stack } from 'aws-cdk-lib';
import * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import type * as codedeploy from 'aws-cdk-lib/aws-codedeploy';
import * as dynamodb from 'aws-cdk-lib/aws-dynamodb';
import * as iam from 'aws-cdk-lib/aws-iam';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as logs from 'aws-cdk-lib/aws-logs';
import * as sns from 'aws-cdk-lib/aws-sns';
import { EmailSubscription, SqsSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import * as sqs from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { alarms } from './alarms.ts';
import { choiceProblems, longestName, problemsOf } from './checks.ts';
import { type Gradual, gradual, LIVE } from './deployment.ts';
import { readyLambda, wire } from './handler.ts';
import { completed, type RetryQueueProps } from './props.ts';
import { filled } from './shared.ts';

/**
 * A queue with its dead-letter queue, and a function that handles its messages and retries them by
 * class of failure. The function sends each message to an HTTP endpoint, invokes your existing function
 * with the messages, or is your own.
 *
 * ```ts
 * const orders = new RetryQueue(this, 'Orders', { targetUrl: 'https://api.example.com/orders' });
 * const mails = new RetryQueue(this, 'Mails', { targetFunction: existingFunction });
 * const bills = new RetryQueue(this, 'Bills', { handler: myFunction });
 * orders.queue.grantSendMessages(producer);
 * ```
 */
export class RetryQueue extends Construct {
  /** The queue for your messages. */
  readonly queue: sqs.Queue;
  /** The dead-letter queue, with the dead-lettered messages. */
  readonly deadLetterQueue: sqs.Queue;
  /** The function that calls the endpoint or `targetFunction`, or `handler`. */
  readonly function: lambda.Function;
  /** The table of `sharedTable`, for the option `sharedTable` of other constructs. */
  readonly table: dynamodb.ITable | undefined;
  /** The alias `live`, with the option `deployment`. */
  readonly alias: lambda.Alias | undefined;
  /** CodeDeploy's group for the alias. `addAlarm` makes a further alarm roll back. */
  readonly deploymentGroup: codedeploy.LambdaDeploymentGroup | undefined;
  /** The alarms, unless `monitoring` is `none`. */
  readonly alarms: readonly cloudwatch.Alarm[];
  /** The topic that notifies `alarmEmail`. */
  readonly alarmTopic: sns.Topic | undefined;
  /** The dashboard, if `monitoring` has one. */
  readonly dashboard: cloudwatch.CfnDashboard | undefined;

  constructor(scope: Construct, id: string, props: RetryQueueProps) {
    super(scope, id);
    const chosen = choiceProblems(props);
    const options = completed(props);
    const problems = chosen.length > 0 ? chosen : problemsOf(options);
    if (problems.length > 0) {
      throw new Error(`RetryQueue ${this.node.path} cannot work:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    }

    const name = props.name ?? Names.uniqueResourceName(this, { maxLength: longestName(props.fifo), separator: '-' });
    const suffix = props.fifo ? '.fifo' : '';
    const queueName = `${name}-messages${suffix}`;
    const kind = {
      // CloudFormation refuses `false`.
      fifo: props.fifo || undefined,
      encryption: props.encryptionKey ? sqs.QueueEncryption.KMS : sqs.QueueEncryption.SQS_MANAGED,
      encryptionMasterKey: props.encryptionKey,
      enforceSSL: props.enforceTls,
      // A deleted stack, and a change of name, leave both queues: their messages are accepted work,
      // and SQS cannot bring them back. A creation that fails leaves none.
      removalPolicy: RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    };
    const source = Stack.of(this).formatArn({ service: 'sqs', resource: queueName });
    this.deadLetterQueue = new sqs.Queue(this, 'DeadLetterQueue', {
      ...kind,
      queueName: `${name}-dead-letters${suffix}`,
      retentionPeriod: Duration.days(14),
      redriveAllowPolicy: { sourceQueues: [sqs.Queue.fromQueueArn(this, 'Source', source)] },
    });
    this.queue = new sqs.Queue(this, 'Queue', {
      ...kind,
      queueName,
      visibilityTimeout: options.visibilityTimeout,
      retentionPeriod: options.retentionPeriod,
      deadLetterQueue: { queue: this.deadLetterQueue, maxReceiveCount: options.maxReceiveCount },
    });
    const { sharedTable = 'none' } = props;
    this.table = typeof sharedTable === 'object' ? sharedTable : sharedTable === 'dynamodb' ? this.makeTable(props.encryptionKey) : undefined;
    const queues = { queue: this.queue, deadLetterQueue: this.deadLetterQueue, table: this.table };
    this.function = props.handler ? wire(this, props.handler, props, options, queues) : readyLambda(this, name, props, options, queues);
    const gradually: Partial<Gradual> = props.deployment ? gradual(this, this.function, props.deployment, options) : {};
    this.alias = gradually.alias;
    this.deploymentGroup = gradually.deploymentGroup;
    // An SqsEventSource would grant the role more than it needs.
    const mapping = new lambda.EventSourceMapping(this, 'Messages', {
      target: this.alias ?? this.function,
      eventSourceArn: this.queue.queueArn,
      batchSize: options.batchSize,
      // A FIFO queue has no window, not even one of 0.
      maxBatchingWindow: props.fifo ? undefined : options.maxBatchingWindow,
      // Without it, Lambda takes every response for success and deletes the failed messages.
      reportBatchItemFailures: true,
      maxConcurrency: options.maximumPollers ? undefined : options.maxConcurrency,
      metricsConfig: props.mappingMetrics ? { metrics: [lambda.MetricType.EVENT_COUNT] } : undefined,
    });
    const { minimumPollers, maximumPollers } = options;
    // The option of CDK's own class allows 2,000 pollers, and Lambda 10,000.
    if (maximumPollers) (mapping.node.defaultChild as lambda.CfnEventSourceMapping).provisionedPollerConfig = { minimumPollers, maximumPollers };
    if (props.permissionsBoundary) iam.PermissionsBoundary.of(this).apply(props.permissionsBoundary);

    if (props.topic) this.subscribe(props.topic, props.topicOperations ?? []);
    this.alarmTopic = props.alarmEmail === undefined ? undefined : this.makeAlarmTopic(props.alarmEmail, props.enforceTls);
    this.alarms =
      options.monitoring === 'none'
        ? []
        : alarms(this, { ...options, ...queues, function: this.function, alias: this.alias && LIVE });
    const told = [this.alarmTopic, props.alarmTopic].filter((topic) => topic !== undefined).map((topic) => new SnsAction(topic));
    for (const alarm of this.alarms) {
      alarm.addAlarmAction(...told);
      alarm.addOkAction(...told);
    }
    this.dashboard = options.monitoring === 'alarms-and-dashboard' ? this.makeDashboard() : undefined;
  }

  /** The function's role. */
  get role(): iam.IRole {
    return this.function.role!;
  }

  /** The function's log group. Its metrics are log lines too. */
  get logGroup(): logs.ILogGroup {
    return this.function.logGroup;
  }

  private makeTable(encryptionKey: kms.IKey | undefined): dynamodb.Table {
    return new dynamodb.Table(this, 'Table', {
      billingMode: dynamodb.BillingMode.PAY_PER_REQUEST,
      partitionKey: { name: 'id', type: dynamodb.AttributeType.STRING },
      timeToLiveAttribute: 'expires',
      // Otherwise by a key that DynamoDB owns, for which no role needs a permission.
      encryption: encryptionKey && dynamodb.TableEncryption.CUSTOMER_MANAGED,
      encryptionKey,
      // Kept like the queues. No point-in-time recovery: a lost item is made anew by the next
      // message, and an old one would be wrong.
      removalPolicy: RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    });
  }

  private subscribe(topic: sns.ITopic, operations: readonly string[]): void {
    const subscription = topic.addSubscription(
      new SqsSubscription(this.queue, {
        // Without raw delivery, SNS wraps each body into JSON of its own, attributes included.
        rawMessageDelivery: true,
        deadLetterQueue: this.deadLetterQueue,
        filterPolicy: operations.length > 0 ? { operation: sns.SubscriptionFilter.stringFilter({ allowlist: [...operations] }) } : undefined,
      }),
    );
    // A message is lost if SNS cannot deliver it and may not yet send to the dead-letter queue.
    subscription?.node.addDependency(this.deadLetterQueue);
  }

  private makeAlarmTopic(address: string, enforceSSL: boolean | undefined): sns.Topic {
    // Not encrypted with KMS: an alarm holds nothing of a message, and a mistake in the key's
    // policy would silence the alarms.
    const topic = new sns.Topic(this, 'AlarmTopic', { enforceSSL });
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
}
