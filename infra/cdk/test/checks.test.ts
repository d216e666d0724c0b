/** The construct refuses impossible options at synthesis, and names the option and the remedy. */

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CfnParameter, Duration, Lazy, type Stack, Token } from 'aws-cdk-lib';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import * as ssm from 'aws-cdk-lib/aws-ssm';
import { builtCode, codeFor } from '../lib/code.ts';
import type { RetryQueueProps } from '../lib/index.ts';
import { filled } from '../lib/shared.ts';
import { PARAMETERS } from '../lib/table.ts';
import { ARM, build, deployed, HERE, made, scratch, X86 } from './world.ts';

const seconds = Duration.seconds;

const FUNCTION = { targetUrl: undefined, targetFunction: 'orders' };

const padded = (bytes: number) => ({ headers: { 'X-Pad': 'a'.repeat(bytes) } });

test('options that contradict each other are refused, with the remedy', () => {
  const table: [Partial<RetryQueueProps>, RegExp][] = [
    [{ visibilityTimeout: seconds(359) }, /visibilityTimeout is 359 s, .*: leave it out, or give it 360 s$/],
    [{ visibilityTimeout: seconds(364), maxBatchingWindow: seconds(5) }, /visibilityTimeout is 364 s, .* give it 365 s$/],
    [{ maximumPollers: 20, maxConcurrency: 10 }, /maxConcurrency and maximumPollers are given together: leave out one of them$/],
    [{ maximumPollers: 4, minimumPollers: 5 }, /maximumPollers is 4, and minimumPollers is 5: give maximumPollers 5 at least, or leave both out$/],
    [{ minimumPollers: 5 }, /maximumPollers is 0, and minimumPollers is 5: /],
    [{ maximumPollers: 10_001 }, /maximumPollers is 10001: give it a whole number from 0 to 10000$/],
    [{ maximumPollers: Token.asNumber({ Ref: 'Pollers' }) }, /maximumPollers is known only at deployment, .*: give it a value$/],
    [{ batchSize: 11 }, /batchSize is 11, .*: give maxBatchingWindow 1 s, or batchSize 10$/],
    [{ fifo: true, maxReceiveCount: 100 }, /deadLetterMode is annotate, .* FIFO queue: give direct, or redrive/],
    [{ fifo: true, deadLetterMode: 'direct', maxReceiveCount: 99 }, /maxReceiveCount is 99, and with fifo each of the policy's 50 retries .*: give maxReceiveCount 100,/],
    [{ fifo: true, deadLetterMode: 'redrive', batchSize: 1, maxReceiveCount: 50 }, /with fifo .*: give maxReceiveCount 51, or policy a lower maxRetries$/],
    [{ strategy: 'visibility', policy: { preset: 'critical' } }, /maxReceiveCount is 5, and with strategy visibility each of the policy's 5 retries .*: give maxReceiveCount 6,/],
    [{ fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100, maxBatchingWindow: seconds(1) }, /maxBatchingWindow is 1 s, and a FIFO queue allows none: leave it out$/],
    [{ targetUrl: undefined }, /neither targetUrl nor targetFunction nor handler is given: give targetUrl, .*, or targetFunction, .*, or handler, /],
    [{ targetFunction: 'orders' }, /targetUrl and targetFunction are given together: give targetUrl, /],
    [{ ...FUNCTION, method: 'PUT' }, /method is no option for targetFunction: leave it out$/],
    [{ ...FUNCTION, messageTimeout: seconds(5) }, /messageTimeout is no option for targetFunction: leave it out$/],
    [{ messagesPerCall: 5 }, /messagesPerCall is no option for targetUrl: leave it out$/],
    [{ ...FUNCTION, messagesPerCall: 10_001 }, /messagesPerCall is 10001: give it a whole number from 1 to 10000$/],
    [{ targetUrl: undefined, targetFunction: 'orders:*' }, /targetFunction is "orders:\*": give it the name of a function, name:alias, or its ARN$/],
    [{ messageTimeout: seconds(56) }, /messageTimeout is 56 s, .*: give messageTimeout 55 s at most, or a longer timeout$/],
    [{ timeout: seconds(8), messageTimeout: seconds(7) }, /messageTimeout is 7 s, .*: give messageTimeout 6 s at most/],
    [{ retentionPeriod: seconds(173_699) }, /retentionPeriod is 173699 s, .* up to 172800 s: .* here 173700 s/],
    [{ policy: { totalTimeoutSeconds: 700_000 } }, /retentionPeriod is 604800 s, .* here 700900 s/],
    [{ policy: '{"totalTimeoutSeconds":700000}' }, /retentionPeriod is 604800 s, .* here 700900 s/],
    [{ maxReceiveCount: 4 }, /maxReceiveCount is 4: give it a whole number from 5 to 1000$/],
    [{ batchSize: 9.5 }, /batchSize is 9\.5: give it a whole number from 1 to 10000$/],
    [{ messageTimeout: Duration.millis(0.5) }, /messageTimeout is 0\.0005 s: give it 0\.001 to 890 s$/],
    [{ messageConcurrency: 1001 }, /messageConcurrency is 1001: give it a whole number from 1 to 1000$/],
    [{ timeout: seconds(901) }, /timeout is 901 s: give it a whole number from 1 to 900 s$/],
    [{ targetUrl: 'api.example.com' }, /targetUrl is "api\.example\.com": give it an https URL, /],
    [{ targetUrl: 'http://api.example.com/' }, /targetUrl is "http:.*": give it an https URL, .*; http is for localhost, or with allowHttp$/],
    [{ targetUrl: 'http://localhost.example.com/' }, /http is for localhost, or with allowHttp$/],
    [{ targetUrl: 'ftp://example.com/', allowHttp: true }, /targetUrl is "ftp:/],
    [{ contentType: 'csv' }, /contentType is "csv": give it a media type/],
    [{ scope: 'account/id' }, /scope is "account\/id": give it the name of a message attribute/],
    [{ policy: '{' }, /policy is not JSON: give it a JSON document, an object, or the ARN /],
    [padded(3908), /the function's variables take 4097 bytes, and Lambda allows 4096, .* of REQUEUE_HEADERS counted twice: shorten it, or store it/],
    [{ policy: '{"maxRetrys":3}' }, /policy\.maxRetrys is unknown/],
    [{ policy: { idempotency: { key: 'orderId' } } }, /policy\.idempotency\.key is "orderId": must be a text of the form /],
    [{ policy: { idempotency: {} } }, /policy has idempotency, .*: give sharedTable dynamodb, or remove idempotency$/],
    [{ topicOperations: ['create'] }, /topicOperations .*: give topic, or leave it out$/],
    [{ clientKey: 'arn:key' }, /clientKey has no certificate: give clientCertificate, or leave it out$/],
    [{ clientCertificate: 'arn:certificate' }, /clientCertificate has no private key.*: give clientKey, or leave it out$/],
    [{ monitoring: 'none', alarmEmail: 'ops@example.com' }, /alarmEmail cannot be notified, since monitoring is none: give monitoring alarms/],
    [{ name: 'a'.repeat(68) }, /name is "a+": give it 1 to 67 letters, digits, hyphens and underscores$/],
    [{ name: 'a'.repeat(63), fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100 }, /name is "a+": give it 1 to 62 letters/],
    [{ name: 'orders.new' }, /name is "orders\.new": give it 1 to 67 letters/],
    [{ maxMessageAge: seconds(59) }, /maxMessageAge is 59 s: give it at least 60 s$/],
    [{ runbookUrl: 'a'.repeat(291) }, /runbookUrl has 291 characters, .*: give it at most 290$/],
    [{ alarmEmail: 'ops' }, /alarmEmail is "ops": give it an e-mail address$/],
  ];
  for (const [props, problem] of table) {
    assert.throws(() => made(props), (error: Error) => {
      const [head, ...problems] = error.message.split('\n');
      assert.equal(head, 'RetryQueue requeue/Orders cannot work:');
      assert.equal(problems.length, 1, error.message);
      assert.match(problems[0]!, problem);
      return true;
    });
  }
});

test('the function waits for its target and has time to settle', () => {
  const target = (stack: Stack, timeout?: Duration) =>
    new lambda.Function(stack, 'Target', { runtime: lambda.Runtime.NODEJS_22_X, handler: 'index.handler', code: lambda.Code.fromInline('//'), timeout });
  const functions = (options: (stack: Stack) => Partial<RetryQueueProps>) =>
    Object.values(deployed(made((stack) => ({ targetUrl: undefined, ...options(stack) }))).resources).filter(({ type }) => type === 'AWS::Lambda::Function');
  const timeouts = (timeout?: Duration) => functions((stack) => ({ targetFunction: target(stack, timeout) })).map(({ properties }) => properties['Timeout']);
  assert.deepEqual(timeouts().at(-1), '60');
  assert.deepEqual(timeouts(seconds(50)).at(-1), '60');
  assert.deepEqual(timeouts(seconds(51)).at(-1), '61');
  const given = (timeout: number) => made((stack) => ({ targetUrl: undefined, targetFunction: target(stack, seconds(300)).currentVersion, timeout: seconds(timeout) }));
  given(60); // The timeout of a version is not known.
  const alias = (timeout: number) =>
    made((stack) => {
      const version = target(stack, seconds(300)).currentVersion;
      return { targetUrl: undefined, targetFunction: new lambda.Alias(stack, 'Live', { aliasName: 'live', version }), timeout: seconds(timeout) };
    });
  alias(310);
  assert.throws(() => alias(309), /timeout is 309 s, and targetFunction may take 300 s: leave timeout out, or give it 310 s, /);
  assert.throws(() => timeouts(seconds(900)), /timeout is 910 s: give it a whole number from 1 to 900 s/);
});

test('the role may invoke the alias that is the target, and nothing else', () => {
  const construct = made((stack) => {
    const code = lambda.Code.fromInline('//');
    const target = new lambda.Function(stack, 'Target', { runtime: lambda.Runtime.NODEJS_22_X, handler: 'index.handler', code });
    return { targetUrl: undefined, targetFunction: target.addAlias('live') };
  });
  const { Role, Function: own } = deployed(construct).resources;
  const policies = Role!.properties['Policies'] as { PolicyName: string; PolicyDocument: { Statement: object[] } }[];
  const { PolicyDocument } = policies.find(({ PolicyName }) => PolicyName === 'TargetFunction')!;
  const { Variables: settings } = own!.properties['Environment'] as { Variables: Record<string, string> };
  const Resource = settings['REQUEUE_TARGET_FUNCTION'];
  assert.match(Resource!, /^<TargetAliaslive/);
  assert.deepEqual(PolicyDocument.Statement, [{ Action: ['lambda:InvokeFunction', 'lambda:GetFunctionConfiguration'], Effect: 'Allow', Resource }]);
});

test('options at the limit are accepted', () => {
  for (const props of [
    { name: 'a'.repeat(67) },
    { name: 'a'.repeat(62), fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100 },
    { fifo: true, deadLetterMode: 'redrive', batchSize: 1, maxReceiveCount: 51 },
    { strategy: 'visibility', policy: { preset: 'critical' }, maxReceiveCount: 6 },
    { strategy: 'visibility', mode: 'report' },
    { targetUrl: 'http://localhost:3000/orders' },
    { targetUrl: 'http://127.0.0.1' },
    { targetUrl: 'http://[::1]:80/' },
    { targetUrl: 'http://orders.internal/', allowHttp: true },
    { visibilityTimeout: seconds(360) },
    { visibilityTimeout: seconds(365), maxBatchingWindow: seconds(5) },
    { timeout: seconds(900), visibilityTimeout: seconds(5400) },
    { batchSize: 10 },
    { batchSize: 11, maxBatchingWindow: seconds(1) },
    { runbookUrl: 'a'.repeat(290) },
    { messageTimeout: seconds(55) },
    { timeout: seconds(8), messageTimeout: seconds(6) },
    padded(3907),
    { policy: 'arn:aws:ssm:eu-west-1:123456789012:parameter/orders/policy', retentionPeriod: seconds(60) },
    { retentionPeriod: seconds(173_700) },
    { retentionPeriod: seconds(1500), policy: { preset: 'critical' } },
    { maxReceiveCount: 5 },
  ] as Partial<RetryQueueProps>[]) {
    made(props);
  }
});

test('an http target of another host is allowed to the function too', () => {
  const variables = (props: Partial<RetryQueueProps>) => {
    const { resources } = deployed(made(props));
    return (resources['Function']!.properties['Environment'] as { Variables: Record<string, string> }).Variables;
  };
  assert.equal(variables({ targetUrl: 'http://orders.internal/', allowHttp: true })['REQUEUE_ALLOW_HTTP'], 'true');
  assert.equal(variables({})['REQUEUE_ALLOW_HTTP'], undefined);
});

test('all problems are reported together', () => {
  const props = { timeout: seconds(10), batchSize: 100, visibilityTimeout: seconds(30), policy: { totalTimeoutSeconds: 1_000_000 } };
  assert.throws(() => made(props), (error: Error) => error.message.split('\n').length === 5);
});

test('a secret is in no error', () => {
  for (const name of ['signingSecret', 'clientCertificate', 'clientKey']) {
    const props = { clientCertificate: 'arn:a', clientKey: 'arn:b', [name]: 'sec-ret' };
    assert.throws(() => made(props), (error: Error) => error.message.includes(`${name} is invalid: give it`) && !/sec-ret/.test(error.message));
  }
});

test('numbers and texts may be known only at deployment, durations not', () => {
  const late = (stack: Stack): Partial<RetryQueueProps> => ({
    targetUrl: new CfnParameter(stack, 'Url').valueAsString,
    batchSize: new CfnParameter(stack, 'Size', { type: 'Number' }).valueAsNumber,
    maxQueueDepth: new CfnParameter(stack, 'Depth', { type: 'Number' }).valueAsNumber,
    policy: new CfnParameter(stack, 'Policy').valueAsString,
  });
  assert.equal(deployed(made(late)).resources['QueueDepthAlarm']!.properties['Threshold'], '');
  const timeout = Duration.seconds(Lazy.number({ produce: () => 30 }));
  assert.throws(() => made({ timeout }), /^Error: RetryQueue .*\n  timeout is known only at deployment, and other options depend on it: give it a value$/);
});

test('the comments on the options have the names and defaults of the table', () => {
  const source = readFileSync(join(HERE, 'lib/props.ts'), 'utf8');
  for (const [name, { default: expected }] of Object.entries(PARAMETERS)) {
    const [, said] = new RegExp(`(?: @default (.*))?(?:\\n(?! {2}readonly).*)*\\n {2}readonly ${name}\\?:`).exec(source) ?? assert.fail(name);
    // Other defaults are described, or have another type than the parameter of the template.
    if (said !== undefined && /^('[a-zA-Z-]+'|\d+|false)$/.test(said)) assert.equal(said.replaceAll("'", ''), String(expected), name);
  }
});

test('the code is the nearest build above, for the same processor', (t) => {
  const root = scratch();
  const below = join(root, 'infra/cdk');
  mkdirSync(below, { recursive: true });
  t.mock.method(process, 'cwd', () => below);
  const { ARM_64, X86_64 } = lambda.Architecture;
  assert.throws(() => builtCode(ARM_64), /there is no target\/lambda\/requeue-lambda\/bootstrap in .*: run `cargo lambda build --release --arm64 -p requeue-lambda`/);
  const built = join(root, 'target/lambda/requeue-lambda');
  build(built, X86);
  builtCode(X86_64);
  assert.throws(() => builtCode(ARM_64), /bootstrap is built for x86_64, and architecture is arm64: run `cargo lambda build --release --arm64 /);
  build(built, ARM);
  builtCode(ARM_64);
  assert.throws(() => builtCode(X86_64), /bootstrap is built for arm64, and architecture is x86_64: run `cargo lambda build --release -p /);
  build(built, 1);
  assert.throws(() => builtCode(X86_64), /built for no processor of Lambda/);
});

test('code for another processor is refused, and the function gets the architecture of its code', () => {
  const arm = lambda.Code.fromAsset(build(scratch(), ARM));
  const x86 = lambda.Code.fromAsset(build(scratch(), X86));
  assert.throws(() => codeFor(lambda.Architecture.X86_64, arm), /bootstrap is built for arm64, and architecture is x86_64: give architecture or code that fit$/);
  assert.throws(() => made({ code: x86 }), /bootstrap is built for x86_64, and architecture is arm64/);
  const { resources } = deployed(made({ architecture: lambda.Architecture.X86_64, code: x86 }));
  assert.deepEqual(resources['Function']!.properties['Architectures'], ['x86_64']);
  // A script is no build for a processor, and nothing is known of code in a bucket.
  const script = scratch();
  writeFileSync(join(script, 'bootstrap'), '#!/bin/sh\n');
  codeFor(lambda.Architecture.ARM_64, lambda.Code.fromAsset(script));
});

test('a placeholder without a value is an error', () => {
  assert.throws(() => filled('policies/function.json', { 'Queue.Arn': 'arn' }), /infra\/policies\/function\.json names \$\{LogGroup\.Arn\}/);
});

test('the queue names are those of the option, and unique by default', () => {
  const named = (props: Partial<RetryQueueProps>) => deployed(made(props)).resources['Queue']!.properties['QueueName'];
  assert.equal(named({ name: 'shop' }), 'shop-messages');
  assert.match(named({}) as string, /^requeue-Orders-[0-9A-F]{8}-messages$/);
});

test('the role may read secrets that are known by their names, and decrypt with keys of the stack', () => {
  const { resources } = deployed(
    made((stack) => {
      const encryptionKey = new kms.Key(stack, 'Key');
      return {
        encryptionKey,
        secrets: [secretsmanager.Secret.fromSecretNameV2(stack, 'Named', 'orders'), new secretsmanager.Secret(stack, 'Own', { encryptionKey })],
        parameters: [ssm.StringParameter.fromSecureStringParameterAttributes(stack, 'Secure', { parameterName: '/orders/signing', encryptionKey })],
      };
    }),
  );
  const policies = resources['Role']!.properties['Policies'] as { PolicyName: string; PolicyDocument: { Statement: [{ Resource: unknown }] } }[];
  const granted = Object.fromEntries(policies.map(({ PolicyName, PolicyDocument }) => [PolicyName, PolicyDocument.Statement[0].Resource]));
  assert.deepEqual(Object.keys(granted), ['Function', 'QueueKey', 'Secrets', 'Parameters', 'SecretKey']);
  assert.equal((granted['Secrets'] as string[])[0], 'arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-??????');
  assert.equal(granted['Parameters'], 'arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing');
  // Both use one key, so the statement names it once.
  assert.match(granted['SecretKey'] as string, /^<Key.*\.Arn>$/);
  assert.equal(granted['SecretKey'], granted['QueueKey']);
});

test('topics in the stack are notified, and deliver', () => {
  const { resources } = deployed(
    made((stack) => ({ topic: new sns.Topic(stack, 'Orders in'), alarmTopic: new sns.Topic(stack, 'Pager') })),
  );
  assert.equal(Object.values(resources).filter(({ type }) => type === 'AWS::SNS::Subscription').length, 1);
  for (const { type, properties } of Object.values(resources)) {
    if (type === 'AWS::CloudWatch::Alarm') assert.deepEqual([properties['AlarmActions'], properties['OKActions']].flat().length, 2);
  }
});
