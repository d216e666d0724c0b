/** The user's function instead of the ready Lambda: the same queues and alarms around it. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { App, CfnResource, Duration, Stack } from 'aws-cdk-lib';
import { Annotations, Match, Template as Assertions } from 'aws-cdk-lib/assertions';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import { RetryQueue, type RetryQueueProps } from '../lib/index.ts';
import { type Resolved, resolved, type Template } from './resolved.ts';
import { deployed, lint, made, scratch, TARGET } from './world.ts';

type Options = Omit<RetryQueueProps, 'handler' | 'targetUrl'>;

function own(stack: Stack, props: Partial<lambda.FunctionProps> = {}): lambda.Function {
  const code = lambda.Code.fromInline('exports.handler = () => {}');
  return new lambda.Function(stack, 'Charge', { runtime: lambda.Runtime.NODEJS_22_X, handler: 'index.handler', code, ...props });
}

/** A stack with queues of these options in front of one function. */
function wired(queues: Record<string, Options>, props: Partial<lambda.FunctionProps> = { timeout: Duration.seconds(60) }) {
  const stack = new Stack(new App(), 'requeue');
  const handler = own(stack, props);
  const constructs = Object.entries(queues).map(([id, options]) => new RetryQueue(stack, id, { ...options, handler }));
  return { stack, handler, constructs, template: Assertions.fromStack(stack).toJSON() as Template };
}

/** The resources of the stack, with their ids in the constructs. */
function resources({ stack, template }: ReturnType<typeof wired>): Resolved['resources'] {
  const ids = stack.node.findAll().filter(CfnResource.isCfnResource);
  const name = (path: string) => path.replace(/^requeue\/(Orders\/)?/, '').replace('/Resource', '').replaceAll('/', '');
  const names = Object.fromEntries(ids.map((resource) => [stack.resolve(resource.logicalId) as string, name(resource.node.path)]));
  return resolved(template, { stackName: 'requeue', names }).resources;
}

const without = (all: Resolved['resources'], ...types: string[]) =>
  Object.fromEntries(Object.entries(all).filter(([, { type }]) => !types.includes(type)));

test('queues, alarms and dashboard are those of the ready Lambda', () => {
  const options = { name: 'requeue', maxQueueDepth: 7 };
  const ready = deployed(made(options)).resources;
  const wiredText = JSON.stringify(resources(wired({ Orders: options })));
  // The alarms name the function and its log group.
  const readyText = wiredText.replaceAll('/aws/lambda/<Charge>', '<LogGroup>').replaceAll('<Charge', '<Function');
  const around = JSON.parse(readyText) as Resolved['resources'];
  const of_the_function = ['AWS::Lambda::Function', 'AWS::IAM::Role', 'AWS::IAM::Policy', 'AWS::Logs::LogGroup'];
  assert.deepEqual(without(around, ...of_the_function), without(ready, ...of_the_function));
});

test('the function gets its settings and may use the queue, and nothing else', () => {
  const around = wired({ Orders: { name: 'requeue', policy: { preset: 'critical' }, strategy: 'visibility', maxReceiveCount: 6, messageConcurrency: 4 } });
  const { Charge, ChargeServiceRoleDefaultPolicy } = resources(around);
  assert.equal(Charge!.properties['RecursiveLoop'], 'Allow');
  assert.deepEqual((Charge!.properties['Environment'] as { Variables: object }).Variables, {
    REQUEUE_CONCURRENCY: '4',
    REQUEUE_DEAD_LETTER: 'annotate',
    REQUEUE_POLICY: '{"preset":"critical"}',
    REQUEUE_RECURSIVE_LOOP: 'Allow',
    REQUEUE_STRATEGY: 'visibility',
  });
  const { Statement: statements } = ChargeServiceRoleDefaultPolicy!.properties['PolicyDocument'] as { Statement: object[] };
  assert.deepEqual(statements, [
    {
      Action: ['sqs:ReceiveMessage', 'sqs:GetQueueAttributes', 'sqs:DeleteMessage', 'sqs:SendMessage', 'sqs:ChangeMessageVisibility'],
      Effect: 'Allow',
      Resource: '<Queue.Arn>',
    },
  ]);
  const [orders] = around.constructs;
  assert.equal(orders!.function, around.handler);
  assert.equal(orders!.role, around.handler.role);
});

test('the function may send dead letters and use the key if it has to', () => {
  const stack = new Stack(new App(), 'requeue');
  const handler = own(stack);
  new RetryQueue(stack, 'Orders', { handler, deadLetterMode: 'direct', encryptionKey: new kms.Key(stack, 'Key'), messageTimeout: Duration.seconds(2) });
  const template = Assertions.fromStack(stack).toJSON() as Template;
  const all = resources({ stack, handler, constructs: [], template });
  const { Statement: statements } = all['ChargeServiceRoleDefaultPolicy']!.properties['PolicyDocument'] as { Statement: { Resource: string }[] };
  assert.deepEqual(statements.map(({ Resource }) => Resource), ['<Queue.Arn>', '<Key.Arn>', '<DeadLetterQueue.Arn>']);
  const { Variables: variables } = all['Charge']!.properties['Environment'] as { Variables: Record<string, string> };
  assert.equal(variables['REQUEUE_DEAD_LETTER_QUEUE_URL'], '<DeadLetterQueue>');
  assert.equal(variables['REQUEUE_TIMEOUT_SECONDS'], '2');
});

test('if CDK may not change the role of the function, a warning has the missing statements', () => {
  const warnings = (options?: iam.FromRoleArnOptions) => {
    const stack = new Stack(new App(), 'requeue');
    const role = iam.Role.fromRoleArn(stack, 'Role', 'arn:aws:iam::123456789012:role/charge', options);
    new RetryQueue(stack, 'Orders', { handler: own(stack, { role }) });
    return Annotations.fromStack(stack).findWarning('*', Match.anyValue()).map(({ entry }) => String(entry.data));
  };
  assert.deepEqual(warnings(), []);
  const [warning = assert.fail(), ...others] = warnings({ mutable: false });
  assert.deepEqual(others, []);
  assert.match(warning, /add these statements to the role yourself: \[\{"Action":\["sqs:ReceiveMessage".*"Fn::GetAtt":\["OrdersQueue\w+","Arn"\]\}\}\]/);
});

test('alarms name the log group of the function', () => {
  const text = (props: Partial<lambda.FunctionProps>) => {
    const { FunctionErrorsAlarm } = resources(wired({ Orders: {} }, props));
    return FunctionErrorsAlarm!.properties['AlarmDescription'] as string;
  };
  assert.match(text({}), /`aws logs tail \/aws\/lambda\/<Charge> --since 10m`/);
  const logGroup = logs.LogGroup.fromLogGroupName(new Stack(), 'Logs', '/shop/charge');
  assert.match(text({ logGroup }), /`aws logs tail \/shop\/charge --since 10m`/);
});

test('the visibility timeout follows from the timeout of the function, and from that of Lambda', () => {
  const visibility = (props: Partial<lambda.FunctionProps>) =>
    resources(wired({ Orders: {} }, props))['Queue']!.properties['VisibilityTimeout'];
  assert.deepEqual([visibility({ timeout: Duration.minutes(5) }), visibility({})], ['1820', '38']);
});

test('several queues may have one function if its settings are the same for each', () => {
  const around = wired({ Orders: { name: 'orders' }, Bills: { name: 'bills' } });
  assert.equal(Object.values(resources(around)).filter(({ type }) => type === 'AWS::Lambda::EventSourceMapping').length, 2);
  const path = join(scratch(), 'template.json');
  writeFileSync(path, JSON.stringify(around.template));
  assert.equal(lint(path), '');
  for (const [options, names] of [
    [{ policy: { preset: 'critical' } }, 'REQUEUE_POLICY'],
    [{ deadLetterMode: 'direct', mode: 'report' }, 'REQUEUE_DEAD_LETTER and REQUEUE_MODE and REQUEUE_DEAD_LETTER_QUEUE_URL'],
  ] as [Options, string][]) {
    assert.throws(() => wired({ Orders: {}, Bills: options }), (error: Error) => {
      assert.match(error.message, /^RetryQueue requeue\/Bills cannot work:\n {2}.*: give both queues the same options, or each a function of its own$/);
      assert.deepEqual(error.message.split('  ')[1]!.split(' would ')[0]!.split(' and ').sort(), names.split(' and ').sort());
      return true;
    });
  }
});

test('several queues of one function share one table', () => {
  const stack = new Stack(new App(), 'requeue');
  const handler = own(stack);
  const first = new RetryQueue(stack, 'Orders', { handler, sharedTable: 'dynamodb', maxConcurrency: 5 });
  assert.throws(() => new RetryQueue(stack, 'Others', { handler, sharedTable: 'dynamodb' }), /different tables, .*: give sharedTable the property table of the other construct/);
  const second = new RetryQueue(stack, 'Bills', { handler, sharedTable: first.table!, maximumPollers: 7 });
  assert.equal(second.table, first.table);
  const all = resources({ stack, handler, constructs: [first, second], template: Assertions.fromStack(stack).toJSON() as Template });
  const { Variables: variables } = all['Charge']!.properties['Environment'] as { Variables: Record<string, string> };
  // The sum: batches of both queues run in the same environments.
  assert.deepEqual([variables['REQUEUE_TABLE'], variables['REQUEUE_MAX_ENVIRONMENTS']], ['<Table>', '75']);
});

test('several or none of targetUrl, targetFunction and handler, and options of the ready Lambda, are refused', () => {
  const refused = (props: RetryQueueProps | ((stack: Stack) => RetryQueueProps)) => {
    const stack = new Stack(new App(), 'requeue');
    let said: string[] = [];
    assert.throws(
      () => new RetryQueue(stack, 'Orders', typeof props === 'function' ? props(stack) : props),
      (error: Error) => (said = error.message.split('\n').slice(1)).length > 0,
    );
    return said;
  };
  const remedy = "give targetUrl, the URL for each message, or targetFunction, an existing function, or handler, a function with Requeue's library";
  assert.deepEqual(refused({}), [`  neither targetUrl nor targetFunction nor handler is given: ${remedy}`]);
  assert.deepEqual(refused((stack) => ({ targetUrl: TARGET, handler: own(stack) })), [`  targetUrl and handler are given together: ${remedy}`]);
  assert.deepEqual(
    refused((stack) => ({ handler: own(stack), headers: {}, timeout: Duration.seconds(9) })),
    ['headers', 'timeout'].map((name) => `  ${name} is no option for handler: leave it out, and set it at the handler`),
  );
  assert.match(refused((stack) => ({ handler: own(stack), messageTimeout: Duration.seconds(3) }))[0]!, /messageTimeout is 3 s, .* timeout \(3 s\) leaves 2\.25 s/);
});
