/**
 * The Terraform module as CloudFormation: `tests/terraform` evaluates it, and tables here translate
 * its resources and arguments. An argument without a translation is an error.
 */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { Resolved, Template } from './resolved.ts';
import { ROOT, TARGET } from './world.ts';

export const MODULE = join(ROOT, 'infra/terraform');

export type Variables = Readonly<Record<string, unknown>>;
type Values = Record<string, any>;

export interface Planned {
  /** The mistake that ended the evaluation. */
  readonly problem?: string;
  /** Messages of validations and preconditions that do not hold. */
  readonly refusals?: readonly string[];
  readonly resources?: Record<string, { readonly type: string; readonly prevent_destroy: boolean; readonly create_before_destroy: boolean; readonly values: Values }>;
  readonly outputs?: Record<string, any>;
}

export interface Evaluated {
  /** Resources with a number of instances, and the variables that decide it. */
  readonly counted: Record<string, readonly string[]>;
  readonly cases: readonly Planned[];
}

/** Variables without which the module makes nothing. */
export const REQUIRED = { name: 'requeue', target_url: TARGET, package: 'target/lambda/requeue-lambda/bootstrap.zip' };

/** Values of the data sources: the same as of CloudFormation's pseudo parameters. */
const DATA = {
  aws_region: { current: { region: 'eu-west-1' } },
  aws_partition: { current: { partition: 'aws' } },
  aws_caller_identity: { current: { account_id: '123456789012' } },
};

const TOOL = join(ROOT, 'tests/terraform');
const BUILT = join(ROOT, 'target/terraform');
execFileSync('cargo', ['build', '--quiet', '--locked', '--manifest-path', join(TOOL, 'Cargo.toml'), '--target-dir', BUILT], { stdio: 'inherit' });

/** The module in the directory, for each of the sets of variables. */
export function evaluated(cases: readonly Variables[], directory = MODULE): Evaluated {
  const input = JSON.stringify({ data: DATA, cases });
  const tool = join(BUILT, 'debug/terraform-shape');
  return JSON.parse(execFileSync(tool, [directory, join(TOOL, 'provider_schema.json')], { input, encoding: 'utf8', maxBuffer: 1e8 })) as Evaluated;
}

/** Names of variables: those of the parameters, in Terraform's spelling. */
export const variable = (parameter: string) => parameter.replaceAll(/(?<!^)([A-Z])/g, '_$1').toLowerCase();

/** The variables with the same meaning as the parameters of the template. */
export function variables(parameters: Readonly<Record<string, string>>, template: Template): Variables {
  const { TopicArn, TopicOperations, ...others } = parameters;
  const given = Object.entries(others).map(([name, text]) => [variable(name), of(name, text, template)]);
  const topic = TopicArn ? { topic: { arn: TopicArn, operations: TopicOperations?.split(',') ?? [] } } : {};
  return { ...REQUIRED, ...Object.fromEntries(given), ...topic };
}

function of(name: string, text: string, template: Template): unknown {
  const { Type, AllowedValues } = template.Parameters![name]!;
  if (name === 'Headers') return JSON.parse(text || '{}');
  if (name === 'AttributeHeaders') return Object.fromEntries(text.split(',').filter(Boolean).map((pair) => pair.split('=')));
  if (Type === 'CommaDelimitedList' || name.endsWith('Ids')) return text.split(',').filter(Boolean);
  if (AllowedValues?.includes('true')) return text === 'true';
  return Type === 'Number' || name === 'FunctionTimeout' ? Number(text) : text;
}

/** Ids in the template. */
const IDS: Record<string, string> = {
  'aws_sqs_queue.queue': 'Queue',
  'aws_sqs_queue.dead_letter_queue': 'DeadLetterQueue',
  'aws_sqs_queue_policy.queue[0]': 'QueuePolicy',
  'aws_sqs_queue_policy.dead_letter_queue[0]': 'DeadLetterQueuePolicy',
  'aws_sns_topic_subscription.messages[0]': 'TopicSubscription',
  'aws_dynamodb_table.table[0]': 'Table',
  'aws_lambda_function.function': 'Function',
  'aws_lambda_event_source_mapping.messages': 'Messages',
  'aws_cloudwatch_log_group.function': 'LogGroup',
  'aws_iam_role.function': 'Role',
  'aws_sns_topic.alarms[0]': 'AlarmTopic',
  'aws_sns_topic_policy.alarms[0]': 'AlarmTopicPolicy',
  'aws_sns_topic_subscription.alarm_email[0]': 'AlarmEmail',
  'aws_cloudwatch_dashboard.dashboard[0]': 'Dashboard',
  'aws_cloudwatch_metric_alarm.alarm["dead-letters"]': 'DeadLettersAlarm',
  'aws_cloudwatch_metric_alarm.alarm["queue-depth"]': 'QueueDepthAlarm',
  'aws_cloudwatch_metric_alarm.alarm["message-age"]': 'MessageAgeAlarm',
  'aws_cloudwatch_metric_alarm.alarm["error-rate"]': 'ErrorRateAlarm',
  'aws_cloudwatch_metric_alarm.alarm["function-duration"]': 'FunctionDurationAlarm',
  'aws_cloudwatch_metric_alarm.alarm["function-errors"]': 'FunctionErrorsAlarm',
  'aws_cloudwatch_metric_alarm.alarm["throttles"]': 'ThrottlesAlarm',
  'aws_cloudwatch_metric_alarm.alarm["send-unconfirmed"]': 'SendUnconfirmedAlarm',
};

/** What `Ref` and `GetAtt` call the attributes. */
const ATTRIBUTES: Record<string, Record<string, string>> = {
  aws_sqs_queue: { id: '', arn: '.Arn', name: '.QueueName' },
  aws_dynamodb_table: { name: '', arn: '.Arn' },
  aws_lambda_function: { function_name: '', arn: '.Arn' },
  aws_cloudwatch_log_group: { name: '', 'arn:*': '.Arn' },
  aws_iam_role: { name: '', id: '', arn: '.Arn' },
  aws_sns_topic: { arn: '' },
  aws_cloudwatch_metric_alarm: { arn: '.Arn' },
  aws_cloudwatch_dashboard: { dashboard_name: '' },
};

/** A text with the references of CloudFormation. */
export function referring(text: string): string {
  return text.replaceAll(/<((aws_\w+)\.\w+(?:\[[^\]]*\])?)\.(\w+)>(:\*)?/g, (whole, address: string, type: string, attribute: string, all = '') => {
    const name = ATTRIBUTES[type]?.[`${attribute}${all}`];
    const id = IDS[address];
    if (id === undefined || name === undefined) throw new Error(`${whole} has no name in CloudFormation`);
    return `<${id}${name}>`;
  });
}

/** The properties for the value of an argument. */
type Translation = (value: any) => Values;

const as = (name: string): Translation => (value) => ({ [name]: value });
const json = (name: string): Translation => (value) => ({ [name]: JSON.parse(value) });
const list = (name: string): Translation => (value) => ({ [name]: [value] });
const unless = (usual: unknown, name: string): Translation => (value) => (value === usual ? {} : { [name]: value });
const block = (name: string, table: Record<string, Translation>): Translation => ([value]) => ({ [name]: translated(value, table, name) });
/** CloudFormation makes the name, or the property is not of the shape. */
const nothing: Translation = () => ({});

const dimensions: Translation = (value) => ({ Dimensions: Object.entries(value).map(([Name, Value]) => ({ Name, Value })) });
const METRIC: Record<string, Translation> = { namespace: as('Namespace'), metric_name: as('MetricName'), dimensions };
const metric: Translation = ([{ stat, period, ...rest }]) => ({ MetricStat: { Metric: translated(rest, METRIC, 'metric'), Stat: stat, Period: period } });
const QUERY = { id: as('Id'), expression: as('Expression'), return_data: as('ReturnData'), metric };

/** Properties of the template by the arguments of the provider. */
const TYPES: Record<string, [string, Record<string, Translation>]> = {
  aws_sqs_queue: [
    'AWS::SQS::Queue',
    {
      name: as('QueueName'),
      fifo_queue: unless(false, 'FifoQueue'),
      sqs_managed_sse_enabled: as('SqsManagedSseEnabled'),
      kms_master_key_id: as('KmsMasterKeyId'),
      message_retention_seconds: as('MessageRetentionPeriod'),
      visibility_timeout_seconds: as('VisibilityTimeout'),
      // The default of SQS. The provider has another one, so that the module must write it.
      max_message_size: unless(1048576, 'MaximumMessageSize'),
      redrive_policy: json('RedrivePolicy'),
      redrive_allow_policy: json('RedriveAllowPolicy'),
      tags: as('Tags'),
    },
  ],
  aws_dynamodb_table: [
    'AWS::DynamoDB::Table',
    {
      name: nothing,
      billing_mode: as('BillingMode'),
      hash_key: (value) => ({ KeySchema: [{ AttributeName: value, KeyType: 'HASH' }] }),
      attribute: (value) => ({ AttributeDefinitions: value.map(({ name, type }: Values) => ({ AttributeName: name, AttributeType: type })) }),
      ttl: block('TimeToLiveSpecification', { attribute_name: as('AttributeName'), enabled: as('Enabled') }),
      server_side_encryption: ([{ enabled, kms_key_arn }]) => ({ SSESpecification: { SSEEnabled: enabled, SSEType: 'KMS', KMSMasterKeyId: kms_key_arn } }),
      tags: as('Tags'),
    },
  ],
  aws_sqs_queue_policy: ['AWS::SQS::QueuePolicy', { queue_url: list('Queues'), policy: json('PolicyDocument') }],
  aws_sns_topic_subscription: [
    'AWS::SNS::Subscription',
    {
      topic_arn: as('TopicArn'),
      protocol: as('Protocol'),
      endpoint: as('Endpoint'),
      raw_message_delivery: as('RawMessageDelivery'),
      filter_policy: json('FilterPolicy'),
      redrive_policy: json('RedrivePolicy'),
    },
  ],
  aws_lambda_function: [
    'AWS::Lambda::Function',
    {
      function_name: nothing,
      filename: nothing,
      source_code_hash: nothing,
      s3_bucket: nothing,
      s3_key: nothing,
      s3_object_version: nothing,
      description: as('Description'),
      role: as('Role'),
      handler: as('Handler'),
      runtime: as('Runtime'),
      architectures: as('Architectures'),
      memory_size: as('MemorySize'),
      timeout: as('Timeout'),
      layers: as('Layers'),
      kms_key_arn: as('KmsKeyArn'),
      publish: unless(false, 'Publish'),
      code_signing_config_arn: as('CodeSigningConfigArn'),
      reserved_concurrent_executions: unless(-1, 'ReservedConcurrentExecutions'),
      environment: block('Environment', { variables: as('Variables') }),
      logging_config: block('LoggingConfig', {
        log_group: as('LogGroup'),
        log_format: as('LogFormat'),
        application_log_level: as('ApplicationLogLevel'),
        system_log_level: as('SystemLogLevel'),
      }),
      // Without the property, CloudFormation sets PassThrough.
      tracing_config: ([{ mode }]) => (mode === 'PassThrough' ? {} : { TracingConfig: { Mode: mode } }),
      vpc_config: block('VpcConfig', { subnet_ids: as('SubnetIds'), security_group_ids: as('SecurityGroupIds') }),
      tags: as('Tags'),
    },
  ],
  aws_lambda_event_source_mapping: [
    'AWS::Lambda::EventSourceMapping',
    {
      // CloudFormation takes the function's name or its ARN.
      function_name: (value) => ({ FunctionName: value === '<aws_lambda_function.function.arn>' ? '<aws_lambda_function.function.function_name>' : value }),
      event_source_arn: as('EventSourceArn'),
      enabled: unless(true, 'Enabled'),
      batch_size: as('BatchSize'),
      maximum_batching_window_in_seconds: as('MaximumBatchingWindowInSeconds'),
      function_response_types: as('FunctionResponseTypes'),
      scaling_config: block('ScalingConfig', { maximum_concurrency: as('MaximumConcurrency') }),
      provisioned_poller_config: block('ProvisionedPollerConfig', { minimum_pollers: as('MinimumPollers'), maximum_pollers: as('MaximumPollers') }),
      metrics_config: block('MetricsConfig', { metrics: as('Metrics') }),
      tags: as('Tags'),
    },
  ],
  aws_iam_role: [
    'AWS::IAM::Role',
    {
      name_prefix: nothing,
      path: unless('/', 'Path'),
      permissions_boundary: as('PermissionsBoundary'),
      assume_role_policy: json('AssumeRolePolicyDocument'),
      tags: as('Tags'),
    },
  ],
  aws_cloudwatch_log_group: [
    'AWS::Logs::LogGroup',
    { name: as('LogGroupName'), retention_in_days: as('RetentionInDays'), kms_key_id: as('KmsKeyId'), tags: as('Tags') },
  ],
  aws_cloudwatch_metric_alarm: [
    'AWS::CloudWatch::Alarm',
    {
      alarm_name: nothing,
      alarm_description: as('AlarmDescription'),
      ...METRIC,
      statistic: as('Statistic'),
      extended_statistic: as('ExtendedStatistic'),
      period: as('Period'),
      evaluation_periods: as('EvaluationPeriods'),
      comparison_operator: as('ComparisonOperator'),
      threshold: as('Threshold'),
      treat_missing_data: as('TreatMissingData'),
      alarm_actions: as('AlarmActions'),
      ok_actions: as('OKActions'),
      metric_query: (value) => ({ Metrics: value.map((query: Values) => translated(query, QUERY, 'metric_query')) }),
      tags: as('Tags'),
    },
  ],
  aws_cloudwatch_dashboard: ['AWS::CloudWatch::Dashboard', { dashboard_name: nothing, dashboard_body: as('DashboardBody') }],
  aws_sns_topic: ['AWS::SNS::Topic', { name: nothing, tags: as('Tags') }],
  aws_sns_topic_policy: ['AWS::SNS::TopicPolicy', { arn: list('Topics'), policy: json('PolicyDocument') }],
};

function translated(values: Values, table: Record<string, Translation>, path: string): Values {
  const properties = Object.entries(values).map(([name, value]) => {
    const translation = table[name];
    if (!translation) throw new Error(`${path}.${name} has no name in CloudFormation`);
    return translation(value);
  });
  return Object.assign({}, ...properties);
}

/** Resources of the provider that are a property of another one in CloudFormation. */
const PARTS: Record<string, (values: Values, properties: (address: string) => Values) => void> = {
  'aws_iam_role_policy.function': ({ name, policy }, properties) => {
    properties('aws_iam_role.function')['Policies'] = [{ PolicyName: name, PolicyDocument: JSON.parse(policy) }];
  },
  'aws_lambda_function_recursion_config.function': ({ recursive_loop }, properties) => {
    properties('aws_lambda_function.function')['RecursiveLoop'] = recursive_loop;
  },
};

/** The resources as CloudFormation would have them, with the ids of the template. */
export function asCloudFormation(planned: Planned): Pick<Resolved, 'resources'> {
  if (planned.problem !== undefined || planned.refusals?.length) throw new Error(planned.problem ?? planned.refusals?.join('\n'));
  const all = Object.entries(planned.resources ?? {});
  const resources = Object.fromEntries(
    all
      .filter(([address]) => !(address in PARTS))
      .map(([address, { type, values, prevent_destroy }]) => {
        const [cloudFormationType, table] = TYPES[type] ?? [];
        if (!table || !cloudFormationType) throw new Error(`${address} has no type in CloudFormation`);
        const policies = prevent_destroy ? { deletion: 'RetainExceptOnCreate', updateReplace: 'Retain' } : { deletion: 'Delete', updateReplace: 'Delete' };
        return [address, { type: cloudFormationType, policies, properties: translated(values, table, address) }];
      }),
  );
  for (const [address, { values }] of all) PARTS[address]?.(values, (owner) => resources[owner]!.properties);
  return { resources: Object.fromEntries(Object.entries(resources).map(([address, resource]) => [IDS[address] ?? address, texts(resource)])) } as Pick<
    Resolved,
    'resources'
  >;
}

/** Numbers as texts, and references as CloudFormation names them. */
function texts(node: any): unknown {
  if (typeof node === 'string') return referring(node);
  if (Array.isArray(node)) return node.map(texts);
  if (typeof node === 'object') return Object.fromEntries(Object.entries(node).map(([name, member]) => [name, texts(member)]));
  return typeof node === 'number' ? String(node) : node;
}
