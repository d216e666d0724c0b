/** The construct makes the same resources as `template.yaml`. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Duration, type Stack } from 'aws-cdk-lib';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as logs from 'aws-cdk-lib/aws-logs';
import * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import * as ssm from 'aws-cdk-lib/aws-ssm';
import type { RetryQueueProps } from '../lib/index.ts';
import { type Resolved, resolved } from './resolved.ts';
import { deployed, made, samTemplate, TARGET } from './world.ts';

const SECRET = 'arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders/api-AbCdEf';
const PARAMETER = 'arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing';
const KEY = 'arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab';
const TOPIC = 'arn:aws:sns:eu-west-1:123456789012:orders';

const key = (stack: Stack) => kms.Key.fromKeyArn(stack, 'Key', KEY);

/** Parameters of the template, and the options with the same meaning. */
const CASES: Record<string, [Record<string, string>, (stack: Stack) => Partial<RetryQueueProps>]> = {
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
  'with the options at their defaults': [
    { Method: 'POST', Strategy: 'copy', DeadLetterMode: 'annotate', Mode: 'requeue', Fifo: 'false', Monitoring: 'alarms-and-dashboard' },
    () => ({ method: 'POST', strategy: 'copy', deadLetterMode: 'annotate', mode: 'requeue', fifo: false, monitoring: 'alarms-and-dashboard' }),
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
  'with FIFO queues': [{ Fifo: 'true', DeadLetterMode: 'direct' }, () => ({ fifo: true, deadLetterMode: 'direct' })],
  'with dead letters that the function sends': [{ DeadLetterMode: 'direct' }, () => ({ deadLetterMode: 'direct' })],
  'with secrets, parameters and their key': [
    { SecretArns: SECRET, ParameterArns: PARAMETER, SecretKmsKeyArn: KEY },
    (stack) => ({
      secrets: [secretsmanager.Secret.fromSecretAttributes(stack, 'Secret', { secretCompleteArn: SECRET, encryptionKey: key(stack) })],
      parameters: [ssm.StringParameter.fromStringParameterArn(stack, 'Parameter', PARAMETER)],
    }),
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

for (const [name, [parameters, options]] of Object.entries(CASES)) {
  test(`the construct is the template ${name}`, () => {
    const names = { FunctionMessages: 'Messages' };
    const template = resolved(samTemplate(), { stackName: 'requeue', parameters: { TargetUrl: TARGET, ...parameters }, names });
    const construct = deployed(made((stack) => ({ name: 'requeue', ...options(stack) })));
    assert.deepEqual(shape(construct), shape(template));
  });
}

test('an option of each parameter of the template is compared', () => {
  const compared = Object.values(CASES).flatMap(([parameters]) => Object.keys(parameters));
  assert.deepEqual([...new Set(['TargetUrl', ...compared])].sort(), Object.keys(samTemplate().Parameters ?? {}).sort());
});

/** The properties that count, in one form if there are several with the same meaning. */
function shape({ resources }: Resolved): unknown {
  const shaped = Object.entries(resources).flatMap(([id, { type, policies, properties }]) => {
    // Left out: the package, and the tags that SAM adds.
    const { Code: _code, Tags: _tags, Subscription: subscriptions, ...counted } = plain(properties) as Record<string, any>;
    if (type === 'AWS::IAM::Role') counted['Policies'] = counted['Policies'].flatMap((policy: any) => policy.PolicyDocument.Statement.flatMap(each)).sort(byText);
    if (type === 'AWS::CloudWatch::Dashboard') counted['DashboardBody'] = JSON.parse(counted['DashboardBody']);
    // A topic's subscriptions are properties of it, or resources.
    const apart = (subscriptions ?? []).map((one: object) => ({ type: 'AWS::SNS::Subscription', policies, counted: { ...one, TopicArn: `<${id}>` } }));
    return [{ id, type, policies, counted }, ...apart].map((one) => [one.type === 'AWS::SNS::Subscription' ? `to ${one.counted.Endpoint}` : one.id, one]);
  });
  return Object.fromEntries(shaped.map(([id, { type, policies, counted }]) => [id, { type, policies, counted }]));
}

/** A statement for each resource. */
const each = (statement: any) => statement.Resource.map((one: unknown) => ({ ...statement, Resource: one }));

const byText = (one: unknown, other: unknown) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1);

function plain(node: any): unknown {
  if (Array.isArray(node)) return node.map(plain);
  if (typeof node !== 'object') return node;
  const members = Object.entries<any>(node).flatMap(([name, member]): [string, unknown][] => {
    if (Array.isArray(member) && member.length === 0) return [];
    switch (name) {
      case 'Sid':
        return [];
      // CDK writes the region of an imported topic, here that of the stack.
      case 'Region':
        return member === 'eu-west-1' ? [] : [[name, member]];
      case 'Action':
      case 'Resource':
        return [[name, [member].flat().sort()]];
      case 'Dimensions':
        return [[name, Object.fromEntries(member.map((dimension: any) => [dimension.Name, dimension.Value]))]];
      case 'Metrics':
        return [[name, metrics(member)]];
      default:
        return [[name, plain(member)]];
    }
  });
  return Object.fromEntries(members);
}

/** Metrics by their ids. The id of the returned one does not matter. */
function metrics(list: any[]): unknown {
  const named = list.map(({ Id, ReturnData = true, ...metric }) => [ReturnData ? 'returned' : Id, plain(metric)]);
  return Object.fromEntries(named);
}
