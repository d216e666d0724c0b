/**
 * The Terraform module makes the same resources as `template.yaml`. Terraform itself may be missing,
 * and `plan` needs the provider: `tests/terraform` evaluates the module.
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CASES } from './cases.ts';
import { resolved } from './resolved.ts';
import { shape } from './shape.ts';
import { asCloudFormation, evaluated, MODULE, type Planned, referring, REQUIRED, variable, type Variables, variables } from './terraform.ts';
import { ROOT, samTemplate, scratch, TARGET } from './world.ts';

const KEY = 'arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab';
const text = (file: string) => readFileSync(file, 'utf8');

const of = (cases: readonly Variables[]) => evaluated(cases.map((one) => ({ ...REQUIRED, ...one })));

const cases = Object.entries(CASES).map(([name, [parameters]]) => [name, parameters] as const);
const same = evaluated(cases.map(([, parameters]) => variables(parameters, samTemplate())));

for (const [index, [name, parameters]] of cases.entries()) {
  test(`the Terraform module is the template ${name}`, () => {
    const names = { FunctionMessages: 'Messages' };
    const template = resolved(samTemplate(), { stackName: 'requeue', parameters: { TargetUrl: TARGET, ...parameters }, names });
    assert.deepEqual(shape(asCloudFormation(same.cases[index]!)), shape(template));
  });
}

test("the module's resources, arguments and references are in the provider's schema", () => {
  assert.deepEqual(same.problems, []);
});

const isThere = spawnSync('terraform', ['version']).status === 0;
test('terraform fmt changes nothing', { skip: isThere ? false : 'terraform is not on the PATH' }, () => {
  const { stdout, status } = spawnSync('terraform', ['fmt', '-check', '-diff', '-no-color', MODULE], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['', 0]);
});

test('the outputs of the template are outputs of the module', () => {
  const parameters = { TargetUrl: TARGET, AlarmEmail: 'ops@example.com', Coordination: 'dynamodb' };
  const template = resolved(samTemplate(), { stackName: 'requeue', parameters, names: {} });
  const [planned] = evaluated([variables(parameters, samTemplate())]).cases;
  for (const [name, { value }] of Object.entries(template.outputs)) {
    assert.equal(referring(planned!.outputs![variable(name)]), value, name);
  }
});

const files = readdirSync(MODULE).filter((name) => name.endsWith('.tf'));
const declared = ['variables.tf', 'options.tf'].flatMap((file) => [...text(join(MODULE, file)).matchAll(/^variable "(\w+)"/gm)]).map(([, name]) => name!);

test('the module uses each variable, and the page on it names each in its table', () => {
  const code = files.filter((name) => !['variables.tf', 'options.tf'].includes(name)).map((name) => text(join(MODULE, name))).join('');
  const page = text(join(MODULE, 'README.md'));
  const named = [...page.split('## Variables')[1]!.split('\n\nA plan refuses')[0]!.matchAll(/^\| (?!about|---).*/gm)];
  assert.deepEqual(declared.filter((name) => !new RegExp(`\\bvar\\.${name}\\b`).test(code)), []);
  assert.deepEqual(named.flatMap(([row]) => [...row!.matchAll(/`(\w+)`/g)].map(([, name]) => name!)).sort(), declared.toSorted());
});

test('the page names the variables that must be known to plan', () => {
  const page = text(join(MODULE, 'README.md'));
  const named = page.split('must know these')[1]!.split('All others')[0]!;
  const deciding = new Set(Object.values(same.counted).flat());
  assert.deepEqual([...new Set([...named.matchAll(/`(\w+)`/g)].map(([, name]) => name))].sort(), [...deciding].sort());
});

test('examples on the pages give only variables that exist, and all required ones', () => {
  for (const page of ['infra/terraform/README.md', 'docs/operate/deploy.md']) {
    const modules = [...text(join(ROOT, page)).matchAll(/^module "\w+" \{\n(.*?)^\}/gms)].map(([, body]) => body!);
    assert.ok(modules.length > 0, page);
    for (const body of modules) {
      const given = [...body.matchAll(/^  (\w+) +=/gm)].map(([, name]) => name!);
      assert.deepEqual(given.filter((name) => name !== 'source' && !declared.includes(name)), [], page);
      assert.ok(['source', 'name', 'target_url', 'package'].every((name) => given.includes(name)), page);
    }
  }
});

const FIFO = { fifo: true, dead_letter_mode: 'direct' };
const TOPIC = 'arn:aws:sns:eu-west-1:123456789012:orders';
/** No class has more than 20 retries. */
const ENTRIES = '{"maxRetries":30,"errorConfigs":{"RATE_LIMIT_EXCEEDED":{"maxRetries":20},"QUOTA":{"maxRetries":10},"DEFAULT":{"maxRetries":15}}}';
const NETWORK = { subnet_ids: ['subnet-1'], security_group_ids: ['sg-1'] };

/** Impossible values, and how the message begins. */
const REFUSED: [Variables, string][] = [
  [{ package: '' }, 'The function has no code, or two: '],
  [{ package: 'target/lambda/requeue-lambda' }, 'package is target/lambda/requeue-lambda, and there is no such file: '],
  [{ package_object: { bucket: 'builds', key: 'a.zip' } }, 'The function has no code, or two: '],
  [{ name: 'a'.repeat(63) }, 'The variable name must have '],
  [{ name: 'orders.fifo' }, 'The variable name must have '],
  [{ target_url: 'ftp://example.com' }, 'The variable target_url must be '],
  [{ target_url: 'https:///orders' }, 'The variable target_url must be '],
  [{ target_url: 'http://example.com/' }, 'target_url is an http URL, '],
  [{ message_timeout: 55.5 }, 'message_timeout is 55.5 s, and function_timeout (60 s) leaves 55 s '],
  [{ function_timeout: 10, message_timeout: 8 }, 'message_timeout is 8 s, and function_timeout (10 s) leaves 7.5 s '],
  [{ function_timeout: 0 }, 'The variable function_timeout must be '],
  [{ function_timeout: 901 }, 'The variable function_timeout must be '],
  [{ batch_size: 11 }, 'batch_size is 11, '],
  [{ fifo: true, dead_letter_mode: 'direct', max_receive_count: 100, batching_window: 1 }, 'batching_window is 1 s, and a FIFO queue '],
  [{ fifo: true, max_receive_count: 100 }, 'dead_letter_mode is annotate, which writes no reason on a FIFO queue: '],
  [{ fifo: true, dead_letter_mode: 'direct', max_receive_count: 99 }, 'max_receive_count is 99, and with fifo each '],
  [{ strategy: 'visibility' }, 'max_receive_count is 5, and with strategy visibility each '],
  [{ ...FIFO, max_receive_count: 19, policy: '{"preset":"high-volume"}' }, "max_receive_count is 19, and with fifo each of the policy's 10 "],
  [{ ...FIFO, max_receive_count: 39, policy: '{"maxRetries":20}' }, "max_receive_count is 39, and with fifo each of the policy's 20 "],
  [{ strategy: 'visibility', policy: '{"preset":"critical"}' }, "max_receive_count is 5, and with strategy visibility each of the policy's 5 "],
  [{ strategy: 'visibility', policy: ENTRIES, max_receive_count: 20 }, "max_receive_count is 20, and with strategy visibility each of the policy's 20 "],
  [{ ...FIFO, max_receive_count: 100, topic: { arn: TOPIC } }, 'topic is a standard topic, '],
  [{ policy: '{"totalTimeoutSeconds":604800}' }, 'message_retention_period is 604800 s, and the policy retries messages for up to 604800 s: '],
  [{ message_retention_period: 173699 }, 'message_retention_period is 173699 s, and the policy retries messages for up to 172800 s: '],
  [{ policy: '{"once":{}}' }, 'policy has once, which needs a table, and coordination is none: '],
  [{ client_certificate: 'arn:aws:x' }, 'client_certificate and client_key belong together: '],
  [{ client_key: 'arn:aws:x' }, 'client_certificate and client_key belong together: '],
  [{ subnet_ids: ['subnet-1'] }, 'subnet_ids and security_group_ids belong together: '],
  [{ security_group_ids: ['sg-1'] }, 'subnet_ids and security_group_ids belong together: '],
  [{ monitoring: 'none', alarm_email: 'a@example.com' }, 'alarm_email and alarm_topic_arn need alarms, '],
  [{ monitoring: 'none', alarm_topic_arn: 'arn:aws:sns:eu-west-1:123456789012:a' }, 'alarm_email and alarm_topic_arn need alarms, '],
  [{ subnet_ids: ['vpc-1'], security_group_ids: ['sg-1'] }, 'The variable subnet_ids must be '],
  [{ subnet_ids: ['subnet-1'], security_group_ids: ['1'] }, 'The variable security_group_ids must be '],
  [{ coordination: 'dynamodb', table: { arn: 'orders' } }, 'The variable table must have '],
  [{ table: { arn: 'arn:aws:dynamodb:eu-west-1:123456789012:table/limits' } }, 'table is given, and coordination is none, '],
  [{ topic: { arn: 'orders' } }, 'The variable topic must have '],
  [{ attribute_headers: { tenant: 'X Tenant' } }, 'The variable attribute_headers must be '],
  [{ secret_arns: ['arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders'] }, 'The variable secret_arns must be '],
  [{ runbook_url: 'a'.repeat(291) }, 'The variable runbook_url must have '],
  [{ role_path: 'service' }, 'The variable role_path must '],
  [{ deployment: 'Canary20Percent5Minutes' }, 'The variable deployment must be '],
  [{ architecture: 'x86' }, 'The variable architecture must be '],
  [{ permissions_boundary_arn: 'developers' }, 'The variable permissions_boundary_arn must be '],
  [{ code_signing_config_arn: 'csc' }, 'The variable code_signing_config_arn must be '],
];

test('the module refuses impossible values, and says why', () => {
  for (const [index, { refusals, problem }] of of(REFUSED.map(([given]) => given)).cases.entries()) {
    const [given, message] = REFUSED[index]!;
    assert.equal(problem, undefined, JSON.stringify(given));
    assert.deepEqual(refusals!.map((found) => found.slice(0, message.length)), [message], JSON.stringify(given));
  }
});

const NEAR: Variables[] = [
  { name: 'a'.repeat(62) },
  { target_url: 'http://localhost:8080/orders' },
  { target_url: 'http://example.com/', allow_http: true },
  { message_timeout: 55 },
  { function_timeout: 900, message_timeout: 890 },
  { batch_size: 11, batching_window: 1 },
  { batch_size: 11, coordination: 'dynamodb' },
  { client_certificate: 'arn:aws:x', client_key: 'arn:aws:x' },
  { package: '', package_object: { bucket: 'builds', key: 'a.zip' } },
  { role_path: '/service/' },
  { runbook_url: 'a'.repeat(290) },
  { fifo: true, dead_letter_mode: 'direct', max_receive_count: 100 },
  { fifo: true, dead_letter_mode: 'redrive', max_receive_count: 51, batch_size: 1 },
  { strategy: 'visibility', max_receive_count: 51 },
  { strategy: 'visibility', mode: 'report' },
  { ...FIFO, max_receive_count: 20, policy: '{"preset":"high-volume"}' },
  { ...FIFO, max_receive_count: 21, batch_size: 1, policy: '{"maxRetries":20}' },
  { ...FIFO, policy: 'arn:aws:ssm:eu-west-1:123456789012:parameter/policy' },
  { ...FIFO, max_receive_count: 100, topic: { arn: `${TOPIC}.fifo` } },
  { topic: { arn: `${TOPIC}.fifo` } },
  { strategy: 'visibility', policy: '{"preset":"critical"}', max_receive_count: 6 },
  { strategy: 'visibility', policy: ENTRIES, max_receive_count: 21 },
  { policy: '{"errorConfigs":{"QUOTA":{"totalTimeoutSeconds":603900}}}' },
  { message_retention_period: 173700 },
  { message_retention_period: 1500, policy: '{"preset":"critical"}' },
  { message_retention_period: 60, policy: 'arn:aws:ssm:eu-west-1:123456789012:parameter/policy' },
  { batching_window: 300, batch_size: 10000 },
  { message_timeout: 0.001 },
  NETWORK,
];

test('the module accepts the values beside the impossible ones', () => {
  for (const [index, { refusals, problem }] of of(NEAR).cases.entries()) {
    assert.deepEqual([problem, refusals], [undefined, []], JSON.stringify(NEAR[index]));
  }
});

type Values = Record<string, any>;

/** The arguments that a variable changes, and the resources that it adds, with their arguments. */
function changes(before: Planned, after: Planned): Values {
  const [without, given] = [before, after].map(({ resources, problem, refusals }) => {
    assert.deepEqual([problem, refusals], [undefined, []]);
    return Object.fromEntries(Object.entries(resources!).flatMap(([address, { values }]) => Object.entries(values).map(([name, value]) => [`${address} ${name}`, plain(value)])));
  });
  return Object.fromEntries(Object.entries(given!).flatMap(([name, value]) => changed(name, without![name], value)));
}

/** Of a policy, the statements that were not there before. */
function changed(name: string, before: any, after: any): [string, any][] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (!after.Statement) return [[name, after]];
  const known = new Set((before?.Statement ?? []).map((one: object) => JSON.stringify(one)));
  return [[name, after.Statement.filter((one: object) => !known.has(JSON.stringify(one)))]];
}

const plain = (value: unknown) => (typeof value === 'string' && value.startsWith('{"') ? JSON.parse(value) : value);

const refuses = (action: string, resource: string) => [
  { Action: action, Condition: { Bool: { 'aws:SecureTransport': 'false' } }, Effect: 'Deny', Principal: { AWS: '*' }, Resource: resource },
];
const ROLE = 'aws_iam_role_policy.function policy';

/** Options that the template does not have, or has by other means, and all that they change. */
const OPTIONS: [Variables, Values][] = [
  [
    { enforce_tls: true },
    {
      'aws_sqs_queue_policy.queue[0] queue_url': '<aws_sqs_queue.queue.id>',
      'aws_sqs_queue_policy.queue[0] policy': refuses('sqs:*', '<aws_sqs_queue.queue.arn>'),
      'aws_sqs_queue_policy.dead_letter_queue[0] queue_url': '<aws_sqs_queue.dead_letter_queue.id>',
      'aws_sqs_queue_policy.dead_letter_queue[0] policy': refuses('sqs:*', '<aws_sqs_queue.dead_letter_queue.arn>'),
    },
  ],
  [
    { tracing: true },
    {
      'aws_lambda_function.function tracing_config': [{ mode: 'Active' }],
      [ROLE]: [{ Action: ['xray:PutTraceSegments', 'xray:PutTelemetryRecords'], Effect: 'Allow', Resource: ['*'], Sid: 'Tracing' }],
    },
  ],
  [
    { environment_kms_key_arn: KEY },
    {
      'aws_lambda_function.function kms_key_arn': KEY,
      [ROLE]: [{ Action: ['kms:Decrypt'], Effect: 'Allow', Resource: [KEY], Sid: 'EnvironmentKey' }],
    },
  ],
  [
    { coordination: 'dynamodb', table: { arn: 'arn:aws:dynamodb:eu-west-1:123456789012:table/limits', kms_key_arn: KEY } },
    {
      'aws_lambda_event_source_mapping.messages maximum_batching_window_in_seconds': 1,
      'aws_lambda_function.function environment': [
        {
          variables: {
            REQUEUE_DEAD_LETTER: 'annotate',
            REQUEUE_MAX_ENVIRONMENTS: '10',
            REQUEUE_RECURSIVE_LOOP: 'Allow',
            REQUEUE_TABLE: 'limits',
            REQUEUE_TARGET_URL: TARGET,
            REQUEUE_TIMEOUT_SECONDS: '10',
          },
        },
      ],
      [ROLE]: [
        {
          Action: ['dynamodb:GetItem', 'dynamodb:UpdateItem'],
          Effect: 'Allow',
          Resource: ['arn:aws:dynamodb:eu-west-1:123456789012:table/limits'],
          Sid: 'Table',
        },
        { Action: ['kms:Decrypt'], Effect: 'Allow', Resource: [KEY], Sid: 'TableKey' },
      ],
    },
  ],
  [{ log_kms_key_arn: KEY }, { 'aws_cloudwatch_log_group.function kms_key_id': KEY }],
  [{ reserve_concurrency: true, maximum_concurrency: 10 }, { 'aws_lambda_function.function reserved_concurrent_executions': 10 }],
  [{ enabled: false }, { 'aws_lambda_event_source_mapping.messages enabled': false }],
  [{ mapping_metrics: true }, { 'aws_lambda_event_source_mapping.messages metrics_config': [{ metrics: ['EventCount'] }] }],
  [{ role_path: '/service/' }, { 'aws_iam_role.function path': '/service/' }],
  [
    { permissions_boundary_arn: 'arn:aws:iam::123456789012:policy/developers' },
    { 'aws_iam_role.function permissions_boundary': 'arn:aws:iam::123456789012:policy/developers' },
  ],
  [
    { code_signing_config_arn: 'arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-0123456789abcdef0' },
    { 'aws_lambda_function.function code_signing_config_arn': 'arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-0123456789abcdef0' },
  ],
  [{ layers: ['arn:aws:lambda:eu-west-1:123456789012:layer:ca:1'] }, { 'aws_lambda_function.function layers': ['arn:aws:lambda:eu-west-1:123456789012:layer:ca:1'] }],
  [{ architecture: 'x86_64' }, { 'aws_lambda_function.function architectures': ['x86_64'] }],
  [
    { environment: { REQUEUE_TRUSTED_SENDERS: 'own' } },
    {
      'aws_lambda_function.function environment': [
        {
          variables: {
            REQUEUE_DEAD_LETTER: 'annotate',
            REQUEUE_RECURSIVE_LOOP: 'Allow',
            REQUEUE_TARGET_URL: TARGET,
            REQUEUE_TIMEOUT_SECONDS: '10',
            REQUEUE_TRUSTED_SENDERS: 'own',
          },
        },
      ],
    },
  ],
  [
    { package: '', package_object: { bucket: 'builds', key: 'a.zip', version: '1' } },
    { 'aws_lambda_function.function s3_bucket': 'builds', 'aws_lambda_function.function s3_key': 'a.zip', 'aws_lambda_function.function s3_object_version': '1' },
  ],
  [
    NETWORK,
    {
      'aws_lambda_function.function vpc_config': [NETWORK],
      [ROLE]: [
        {
          Action: [
            'ec2:CreateNetworkInterface',
            'ec2:DescribeNetworkInterfaces',
            'ec2:DescribeSubnets',
            'ec2:DeleteNetworkInterface',
            'ec2:AssignPrivateIpAddresses',
            'ec2:UnassignPrivateIpAddresses',
          ],
          Condition: { Null: { 'lambda:SourceFunctionArn': 'true' } },
          Effect: 'Allow',
          Resource: ['*'],
          Sid: 'NetworkInterfaces',
        },
      ],
    },
  ],
];

const [unchanged, ...optional] = of([{}, ...OPTIONS.map(([given]) => given)]).cases;

for (const [index, [given, expected]] of OPTIONS.entries()) {
  test(`the variables ${Object.keys(given).join(' and ')} change nothing else`, () => assert.deepEqual(changes(unchanged!, optional[index]!), expected));
}

test('tags are on every resource that can have them', () => {
  const { resource } = JSON.parse(text(join(ROOT, 'tests/terraform/provider_schema.json')));
  const tags = { team: 'shop' };
  const [planned] = of([{ tags, coordination: 'dynamodb', deployment: 'AllAtOnce', alarm_email: 'ops@example.com' }]).cases;
  for (const [address, { type, values }] of Object.entries(planned!.resources!)) {
    assert.deepEqual(values['tags'], resource[type].arguments.tags ? tags : undefined, address);
  }
});

test('a gradual deployment moves the alias by CodeDeploy, and an alarm on the new version rolls back', () => {
  const [planned] = of([{ deployment: 'Canary10Percent5Minutes' }]).cases;
  const values = (address: string) => planned!.resources![address]!.values;
  assert.equal(values('aws_lambda_function.function')['publish'], true);
  // The version before may have another dead-letter mode.
  const granted = JSON.parse(values('aws_iam_role_policy.function')['policy']).Statement as { Sid: string }[];
  assert.deepEqual(granted.map(({ Sid }) => Sid), ['Queue', 'Logs', 'DeadLetters']);
  assert.equal(values('aws_lambda_event_source_mapping.messages')['function_name'], '<aws_lambda_alias.live[0].arn>');
  const group = values('aws_codedeploy_deployment_group.live[0]');
  assert.equal(group['deployment_config_name'], 'CodeDeployDefault.LambdaCanary10Percent5Minutes');
  assert.deepEqual(group['alarm_configuration'], [{ enabled: true, alarms: ['<aws_cloudwatch_metric_alarm.new_version_errors[0].alarm_name>'] }]);
  assert.deepEqual(group['auto_rollback_configuration'], [{ enabled: true, events: ['DEPLOYMENT_FAILURE', 'DEPLOYMENT_STOP_ON_ALARM'] }]);
  const request = JSON.parse(planned!.outputs!['deployment']);
  assert.deepEqual(JSON.parse(request.revision.appSpecContent.content), {
    version: 0,
    Resources: [
      {
        requeue: {
          Type: 'AWS::Lambda::Function',
          Properties: {
            Name: 'requeue',
            Alias: '<aws_lambda_alias.live[0].name>',
            CurrentVersion: '<aws_lambda_alias.live[0].function_version>',
            TargetVersion: '<aws_lambda_function.function.version>',
          },
        },
      },
    ],
  });
  assert.match(values('aws_cloudwatch_metric_alarm.alarm["throttles"]')['alarm_description'], /requeue doctor --function \S+:live`/);
});

test('a replaced role or removed alias stays until the function and the mapping have left it', () => {
  const [planned] = of([{ deployment: 'AllAtOnce' }]).cases;
  const first = Object.entries(planned!.resources!).filter(([, { create_before_destroy }]) => create_before_destroy);
  assert.deepEqual(first.map(([address]) => address).sort(), ['aws_iam_role.function', 'aws_iam_role_policy.function', 'aws_lambda_alias.live[0]']);
});

test('without tracing, the module sets the mode of the time before it', () => {
  // The provider computes a block that is not given, so tracing would stay on.
  const values = unchanged!.resources!['aws_lambda_function.function']!.values;
  assert.deepEqual(values['tracing_config'], [{ mode: 'PassThrough' }]);
});

test('both queues take messages of 1 MiB', () => {
  // The provider sets 256 KiB if the module is silent. SQS, and so CloudFormation, sets 1 MiB.
  for (const queue of ['queue', 'dead_letter_queue']) assert.equal(unchanged!.resources![`aws_sqs_queue.${queue}`]!.values['max_message_size'], 1048576);
});

/** Mistakes in the module, and what is said about each. */
const MISTAKES: [string, string, string, RegExp][] = [
  ['function.tf', '  memory_size   = var', '  memory        = var', /has the argument memory, and the schema has none/],
  ['function.tf', '  logging_config {', '  log_config {', /has the block log_config, and the schema has none/],
  ['function.tf', '  recursive_loop = "Allow"\n', '', /has no recursive_loop, and the schema requires it/],
  ['role.tf', 'aws_sqs_queue.queue.arn', 'aws_sqs_queue.queue.address', /address/],
  ['role.tf', 'aws_sqs_queue.queue.arn', 'aws_sqs_queue.queues.arn', /queues/],
  ['queues.tf', 'var.fifo ?', 'var.fifos ?', /fifos/],
  ['queues.tf', 'arn:${data.aws_partition.current.partition}:sqs:', '${aws_sqs_queue.queue.arn}:', /a circle of references: .*aws_sqs_queue\.dead_letter_queue, aws_sqs_queue\.queue/],
  ['alarms.tf', 'var.alarm_email == "" ? 0 : 1', 'aws_sqs_queue.queue.arn == "" ? 0 : 1', /aws_sns_topic/],
  ['alarms.tf', '"Queue.QueueName" ', '"Queue.Name"      ', /Queue\.QueueName/],
];

test('a mistake in the module is found', () => {
  const there = scratch();
  for (const name of ['dashboard.json', 'deployment.json']) cpSync(join(ROOT, 'infra', name), join(there, name));
  for (const [index, [file, from, to, expected]] of MISTAKES.entries()) {
    const copy = join(there, `module-${index}`);
    cpSync(MODULE, copy, { recursive: true });
    const before = text(join(copy, file));
    assert.ok(before.includes(from), from);
    writeFileSync(join(copy, file), before.replace(from, to));
    const { problems, cases } = evaluated([REQUIRED], copy);
    assert.match([...problems, cases[0]!.problem].join('\n'), expected, to);
  }
});

test('a setting that differs from the template is found', () => {
  const there = scratch();
  const copy = join(there, 'module');
  for (const name of ['dashboard.json', 'deployment.json']) cpSync(join(ROOT, 'infra', name), join(there, name));
  cpSync(MODULE, copy, { recursive: true });
  writeFileSync(join(copy, 'alarms.tf'), text(join(copy, 'alarms.tf')).replace('treat_missing_data  = "notBreaching"', 'treat_missing_data  = "missing"'));
  const template = resolved(samTemplate(), { stackName: 'requeue', parameters: { TargetUrl: TARGET }, names: { FunctionMessages: 'Messages' } });
  assert.notDeepEqual(shape(asCloudFormation(evaluated([REQUIRED], copy).cases[0]!)), shape(template));
});
