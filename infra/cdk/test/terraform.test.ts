/**
 * The Terraform module makes the same resources as `template.yaml`, and its messages name the remedy.
 * `tests/terraform` evaluates the module. `infra/terraform/tests` has the tests for Terraform itself,
 * which needs the provider.
 */

import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CASES } from './cases.ts';
import { resolved } from './resolved.ts';
import { shape } from './shape.ts';
import { asCloudFormation, evaluated, MODULE, type Planned, referring, REQUIRED, variable, type Variables, variables } from './terraform.ts';
import { ROOT, samTemplate, scratch, TARGET } from './world.ts';

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

test('the outputs of the template are outputs of the module', () => {
  const parameters = { TargetUrl: TARGET, AlarmEmail: 'ops@example.com', SharedTable: 'dynamodb' };
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
      assert.ok(['source', 'name', 'package'].every((name) => given.includes(name)), page);
      assert.ok(given.includes('target_url') !== given.includes('target_function'), page);
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
  [{ target_url: 'http://example.com/' }, 'target_url is an http URL, '],
  [{ target_url: '' }, 'The function has no target, or two: '],
  [{ target_function: 'orders' }, 'The function has no target, or two: '],
  [{ message_timeout: 55.5 }, 'message_timeout is 55.5 s, and function_timeout (60 s) leaves 55 s '],
  [{ function_timeout: 10, message_timeout: 8 }, 'message_timeout is 8 s, and function_timeout (10 s) leaves 7.5 s '],
  [{ batch_size: 11 }, 'batch_size is 11, '],
  [{ maximum_pollers: 1 }, 'maximum_pollers is 1, and minimum_pollers is 2: '],
  [{ maximum_pollers: 19, minimum_pollers: 20 }, 'maximum_pollers is 19, and minimum_pollers is 20: '],
  [{ minimum_pollers: 3 }, 'maximum_pollers is 0, and minimum_pollers is 3: '],
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
  [{ policy: '{"idempotency":{}}' }, 'policy has idempotency, which needs a table, and shared_table is none: '],
  [{ client_certificate: 'arn:aws:x' }, 'client_certificate and client_key belong together: '],
  [{ client_key: 'arn:aws:x' }, 'client_certificate and client_key belong together: '],
  [{ subnet_ids: ['subnet-1'] }, 'subnet_ids and security_group_ids belong together: '],
  [{ security_group_ids: ['sg-1'] }, 'subnet_ids and security_group_ids belong together: '],
  [{ monitoring: 'none', alarm_email: 'a@example.com' }, 'alarm_email and alarm_topic_arn need alarms, '],
  [{ monitoring: 'none', alarm_topic_arn: 'arn:aws:sns:eu-west-1:123456789012:a' }, 'alarm_email and alarm_topic_arn need alarms, '],
  [{ table: { arn: 'arn:aws:dynamodb:eu-west-1:123456789012:table/limits' } }, 'table is given, and shared_table is none, '],
];

test('the module refuses impossible values, and says why', () => {
  for (const [index, { refusals, problem }] of of(REFUSED.map(([given]) => given)).cases.entries()) {
    const [given, message] = REFUSED[index]!;
    assert.equal(problem, undefined, JSON.stringify(given));
    assert.deepEqual(refusals!.map((found) => found.slice(0, message.length)), [message], JSON.stringify(given));
  }
});

const NEAR: Variables[] = [
  { target_url: 'http://localhost:8080/orders' },
  { target_url: 'http://example.com/', allow_http: true },
  { message_timeout: 55 },
  { target_url: '', target_function: 'orders:live', function_timeout: 10 },
  { function_timeout: 900, message_timeout: 890 },
  { batch_size: 11, batching_window: 1 },
  { batch_size: 11, shared_table: 'dynamodb' },
  { client_certificate: 'arn:aws:x', client_key: 'arn:aws:x' },
  { package: '', package_object: { bucket: 'builds', key: 'a.zip' } },
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
  { maximum_pollers: 20, minimum_pollers: 20 },
  NETWORK,
];

test('the module accepts the values beside the impossible ones', () => {
  for (const [index, { refusals, problem }] of of(NEAR).cases.entries()) {
    assert.deepEqual([problem, refusals], [undefined, []], JSON.stringify(NEAR[index]));
  }
});

/** The arguments that differ between two plans, and those of added resources. */
function changes(before: Planned, after: Planned): string[] {
  const [without, given] = [before, after].map(({ resources, problem, refusals }) => {
    assert.deepEqual([problem, refusals], [undefined, []]);
    return new Map(Object.entries(resources!).flatMap(([address, { values }]) => Object.entries(values).map(([name, value]) => [`${address} ${name}`, JSON.stringify(value)])));
  });
  return [...given!].filter(([name, value]) => without!.get(name) !== value).map(([name]) => name.replace(/^aws_/, '')).sort();
}

const KEY = 'arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab';
const ROLE = 'iam_role_policy.function policy';
const SETTINGS = 'lambda_function.function environment';
const MAPPING = 'lambda_event_source_mapping.messages';

/** Options that the template does not have, or has by other means, and all that they change. */
const OPTIONS: [Variables, string[]][] = [
  [{ enforce_tls: true }, ['dead_letter_queue', 'queue'].flatMap((queue) => ['policy', 'queue_url'].map((name) => `sqs_queue_policy.${queue}[0] ${name}`))],
  [{ tracing: true }, [ROLE, 'lambda_function.function tracing_config']],
  [{ environment_kms_key_arn: KEY }, [ROLE, 'lambda_function.function kms_key_arn']],
  [{ shared_table: 'dynamodb', table: { arn: 'arn:aws:dynamodb:eu-west-1:123456789012:table/limits', kms_key_arn: KEY } }, [ROLE, `${MAPPING} maximum_batching_window_in_seconds`, SETTINGS]],
  [{ log_kms_key_arn: KEY }, ['cloudwatch_log_group.function kms_key_id']],
  [{ reserve_concurrency: true }, ['lambda_function.function reserved_concurrent_executions']],
  [{ enabled: false }, [`${MAPPING} enabled`]],
  [{ mapping_metrics: true }, [`${MAPPING} metrics_config`]],
  [{ role_path: '/service/' }, ['iam_role.function path']],
  [{ permissions_boundary_arn: 'arn:aws:iam::123456789012:policy/developers' }, ['iam_role.function permissions_boundary']],
  [{ code_signing_config_arn: 'arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-0123456789abcdef0' }, ['lambda_function.function code_signing_config_arn']],
  [{ layers: ['arn:aws:lambda:eu-west-1:123456789012:layer:ca:1'] }, ['lambda_function.function layers']],
  [{ architecture: 'x86_64' }, ['lambda_function.function architectures']],
  [{ environment: { REQUEUE_TRUSTED_SENDERS: 'own' } }, [SETTINGS]],
  [{ package: '', package_object: { bucket: 'builds', key: 'a.zip', version: '1' } }, ['bucket', 'key', 'object_version'].map((name) => `lambda_function.function s3_${name}`)],
  [NETWORK, [ROLE, 'lambda_function.function vpc_config']],
];

test('each further option changes its own arguments and no others', () => {
  const [unchanged, ...optional] = of([{}, ...OPTIONS.map(([given]) => given)]).cases;
  for (const [index, [given, expected]] of OPTIONS.entries()) assert.deepEqual(changes(unchanged!, optional[index]!), expected, JSON.stringify(given));
});

test('tags are on every resource that can have them', () => {
  const { resource } = JSON.parse(text(join(ROOT, 'tests/terraform/provider_schema.json')));
  const tags = { team: 'shop' };
  const [planned] = of([{ tags, shared_table: 'dynamodb', deployment: 'AllAtOnce', alarm_email: 'ops@example.com' }]).cases;
  for (const [address, { type, values }] of Object.entries(planned!.resources!)) {
    assert.deepEqual(values['tags'], resource[type].arguments.tags ? tags : undefined, address);
  }
});

test('the output deployment moves the alias to the newest version', () => {
  const [planned] = of([{ deployment: 'AllAtOnce' }]).cases;
  const { revision } = JSON.parse(planned!.outputs!['deployment']);
  const [{ requeue }] = JSON.parse(revision.appSpecContent.content).Resources;
  const [CurrentVersion, TargetVersion] = ['<aws_lambda_alias.live[0].function_version>', '<aws_lambda_function.function.version>'];
  assert.deepEqual(requeue.Properties, { Name: 'requeue', Alias: '<aws_lambda_alias.live[0].name>', CurrentVersion, TargetVersion });
});

test('a replaced role or removed alias stays until the function and the mapping have left it', () => {
  const [planned] = of([{ deployment: 'AllAtOnce' }]).cases;
  const first = Object.entries(planned!.resources!).filter(([, { create_before_destroy }]) => create_before_destroy);
  assert.deepEqual(first.map(([address]) => address).sort(), ['aws_iam_role.function', 'aws_iam_role_policy.function', 'aws_lambda_alias.live[0]']);
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
