/** Deployments by the template and by the construct, of which each pair must be the same. */

import { Duration, type Stack } from 'aws-cdk-lib';
import * as ec2 from 'aws-cdk-lib/aws-ec2';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import * as ssm from 'aws-cdk-lib/aws-ssm';
import type { RetryQueueProps } from '../lib/index.ts';

const SECRET = 'arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders/api-AbCdEf';
const PARAMETER = 'arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing';
const KEY = 'arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab';
const TOPIC = 'arn:aws:sns:eu-west-1:123456789012:orders';
const SUBNETS = ['subnet-0a1b2c3d4e5f60718', 'subnet-1a2b3c4d5e6f70819'];
const GROUPS = ['sg-0a1b2c3d4e5f60718', 'sg-1a2b3c4d5e6f70819'];
const BOUNDARY = 'arn:aws:iam::123456789012:policy/developers';

const FOREIGN = 'arn:aws:lambda:eu-west-1:210987654321:function:orders';

const key = (stack: Stack) => kms.Key.fromKeyArn(stack, 'Key', KEY);

/** Parameters of the template, and the options with the same meaning. */
export const CASES: Record<string, [Record<string, string>, (stack: Stack) => Partial<RetryQueueProps>]> = {
  'with nothing but the target': [{}, () => ({})],
  'with the texts of each option': [
    {
      Method: 'PUT',
      ContentType: 'text/csv',
      MessageTimeout: '20',
      MessageConcurrency: '5',
      Headers: `{"Authorization":"Bearer ${SECRET}:token::","X-Source":"orders"}`,
      AttributeHeaders: 'tenant=X-Tenant,trace=X-Trace',
      SigningSecret: PARAMETER,
      ClientCertificate: `${SECRET}:certificate::`,
      ClientKey: `${SECRET}:key::`,
      Policy: '{"preset":"critical","errorConfigs":{"QUOTA":{"backoff":[300,900]}}}',
      Scope: 'tenant',
      Strategy: 'visibility',
      DeadLetterMode: 'redrive',
      Mode: 'report',
    },
    () => ({
      method: 'PUT',
      contentType: 'text/csv',
      messageTimeout: Duration.seconds(20),
      messageConcurrency: 5,
      headers: { Authorization: `Bearer ${SECRET}:token::`, 'X-Source': 'orders' },
      attributeHeaders: { tenant: 'X-Tenant', trace: 'X-Trace' },
      signingSecret: PARAMETER,
      clientCertificate: `${SECRET}:certificate::`,
      clientKey: `${SECRET}:key::`,
      policy: { preset: 'critical', errorConfigs: { QUOTA: { backoff: [300, 900] } } },
      scope: 'tenant',
      strategy: 'visibility',
      deadLetterMode: 'redrive',
      mode: 'report',
    }),
  ],
  'with a function as target, by its name': [
    { TargetUrl: '', TargetFunction: 'orders', MessagesPerCall: '5' },
    () => ({ targetUrl: undefined, targetFunction: 'orders', messagesPerCall: 5 }),
  ],
  'with an alias as target': [{ TargetUrl: '', TargetFunction: 'orders:live' }, () => ({ targetUrl: undefined, targetFunction: 'orders:live' })],
  'with a function of another account as target': [
    { TargetUrl: '', TargetFunction: FOREIGN },
    (stack) => ({ targetUrl: undefined, targetFunction: lambda.Function.fromFunctionArn(stack, 'Target', FOREIGN) }),
  ],
  'with the options at their defaults': [
    { Method: 'POST', SharedTable: 'none', Strategy: 'copy', DeadLetterMode: 'annotate', Mode: 'requeue', Fifo: 'false', ReserveConcurrency: 'false', Monitoring: 'alarms-and-dashboard' },
    () => ({ method: 'POST', sharedTable: 'none', strategy: 'copy', deadLetterMode: 'annotate', mode: 'requeue', fifo: false, reserveConcurrency: false, monitoring: 'alarms-and-dashboard' }),
  ],
  'with another size': [
    {
      MemorySize: '512',
      FunctionTimeout: '300',
      BatchSize: '100',
      BatchingWindow: '5',
      MaximumConcurrency: '50',
      LogRetentionDays: '7',
      MessageRetentionPeriod: '864000',
      MaxReceiveCount: '8',
    },
    () => ({
      memorySize: 512,
      timeout: Duration.minutes(5),
      batchSize: 100,
      maxBatchingWindow: Duration.seconds(5),
      maxConcurrency: 50,
      logRetention: logs.RetentionDays.ONE_WEEK,
      retentionPeriod: Duration.days(10),
      maxReceiveCount: 8,
    }),
  ],
  'with FIFO queues': [
    { Fifo: 'true', DeadLetterMode: 'direct', MaxReceiveCount: '100' },
    () => ({ fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100 }),
  ],
  'with dead letters that the function sends': [{ DeadLetterMode: 'direct' }, () => ({ deadLetterMode: 'direct' })],
  'with secrets, parameters and their key': [
    { SecretArns: SECRET, ParameterArns: PARAMETER, SecretKmsKeyArn: KEY },
    (stack) => ({
      secrets: [secretsmanager.Secret.fromSecretAttributes(stack, 'Secret', { secretCompleteArn: SECRET, encryptionKey: key(stack) })],
      parameters: [ssm.StringParameter.fromStringParameterArn(stack, 'Parameter', PARAMETER)],
    }),
  ],
  'in a VPC, with a permissions boundary and reserved concurrency': [
    { ReserveConcurrency: 'true', MaximumConcurrency: '20', SubnetIds: SUBNETS.join(), SecurityGroupIds: GROUPS.join(), PermissionsBoundaryArn: BOUNDARY },
    (stack) => ({
      reserveConcurrency: true,
      maxConcurrency: 20,
      vpc: ec2.Vpc.fromVpcAttributes(stack, 'Vpc', { vpcId: 'vpc-1', availabilityZones: ['eu-west-1a', 'eu-west-1b'], privateSubnetIds: SUBNETS }),
      securityGroups: GROUPS.map((group) => ec2.SecurityGroup.fromSecurityGroupId(stack, group, group)),
      permissionsBoundary: iam.ManagedPolicy.fromManagedPolicyArn(stack, 'Boundary', BOUNDARY),
    }),
  ],
  'in the provisioned mode, with a table and reserved concurrency': [
    { MaximumPollers: '5000', MinimumPollers: '50', SharedTable: 'dynamodb', ReserveConcurrency: 'true' },
    () => ({ maximumPollers: 5000, minimumPollers: 50, sharedTable: 'dynamodb', reserveConcurrency: true }),
  ],
  'with a stored policy': [
    { Policy: PARAMETER, ParameterArns: PARAMETER },
    (stack) => ({ policy: PARAMETER, parameters: [ssm.StringParameter.fromStringParameterArn(stack, 'Parameter', PARAMETER)] }),
  ],
  'with a key for the queues': [{ KmsKeyArn: KEY }, (stack) => ({ encryptionKey: key(stack) })],
  'with a key that the queues had': [{ OtherKmsKeyArns: KEY }, (stack) => ({ otherEncryptionKeys: [key(stack)] })],
  'with a key for the queues and two others': [
    { KmsKeyArn: KEY, OtherKmsKeyArns: `${KEY}2,${KEY}3` },
    (stack) => ({
      encryptionKey: key(stack),
      otherEncryptionKeys: ['2', '3'].map((one) => kms.Key.fromKeyArn(stack, `Key${one}`, `${KEY}${one}`)),
    }),
  ],
  'with a table': [{ SharedTable: 'dynamodb' }, () => ({ sharedTable: 'dynamodb' })],
  'with a table under the key of the queues, and a longer window': [
    { SharedTable: 'dynamodb', KmsKeyArn: KEY, BatchingWindow: '5', BatchSize: '100', MaximumConcurrency: '20' },
    (stack) => ({ sharedTable: 'dynamodb', encryptionKey: key(stack), maxBatchingWindow: Duration.seconds(5), batchSize: 100, maxConcurrency: 20 }),
  ],
  'with a table and FIFO queues': [
    { SharedTable: 'dynamodb', Fifo: 'true', DeadLetterMode: 'direct', MaxReceiveCount: '100' },
    () => ({ sharedTable: 'dynamodb', fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100 }),
  ],
  'with a topic': [{ TopicArn: TOPIC }, (stack) => ({ topic: sns.Topic.fromTopicArn(stack, 'Topic', TOPIC) })],
  'with some messages of a topic': [
    { TopicArn: TOPIC, TopicOperations: 'create,update' },
    (stack) => ({ topic: sns.Topic.fromTopicArn(stack, 'Topic', TOPIC), topicOperations: ['create', 'update'] }),
  ],
  'without alarms': [{ Monitoring: 'none' }, () => ({ monitoring: 'none' })],
  'without a dashboard, and with notifications of alarms': [
    {
      Monitoring: 'alarms',
      MaxQueueDepth: '10',
      MaxMessageAgeSeconds: '3600',
      AlarmEmail: 'ops@example.com',
      AlarmTopicArn: TOPIC,
      RunbookUrl: 'https://wiki.example.com/requeue',
    },
    (stack) => ({
      monitoring: 'alarms',
      maxQueueDepth: 10,
      maxMessageAge: Duration.hours(1),
      alarmEmail: 'ops@example.com',
      alarmTopic: sns.Topic.fromTopicArn(stack, 'Topic', TOPIC),
      runbookUrl: 'https://wiki.example.com/requeue',
    }),
  ],
};
