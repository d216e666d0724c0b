/** Options that operations and security teams ask for. Without them, the template's test holds. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Aws, CfnParameter, CfnResource, Duration, type Stack, Tags } from 'aws-cdk-lib';
import { Annotations, Match } from 'aws-cdk-lib/assertions';
import * as apigatewayv2 from 'aws-cdk-lib/aws-apigatewayv2';
import * as codedeploy from 'aws-cdk-lib/aws-codedeploy';
import * as dynamodb from 'aws-cdk-lib/aws-dynamodb';
import * as ec2 from 'aws-cdk-lib/aws-ec2';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as logs from 'aws-cdk-lib/aws-logs';
import * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import * as ssm from 'aws-cdk-lib/aws-ssm';
import { RetryQueue, type RetryQueueProps } from '../lib/index.ts';
import type { Resolved, Template } from './resolved.ts';
import { deployed, everything, lint, made, scratch } from './world.ts';

const { CANARY_10PERCENT_5MINUTES } = codedeploy.LambdaDeploymentConfig;

type Resource = Resolved['resources'][string];

const of = (resources: Resolved['resources'], type: string): [string, Resource][] =>
  Object.entries(resources).filter(([, resource]) => resource.type === type);

/** All statements of the function's role. */
function statements(resources: Resolved['resources']): any[] {
  const { Policies: inline = [] } = resources['Role']!.properties as { Policies?: any[] };
  const attached = of(resources, 'AWS::IAM::Policy').map(([, { properties }]) => properties as any);
  assert.deepEqual(attached.flatMap(({ Roles }) => Roles), attached.map(() => '<Role>'));
  return [...inline, ...attached].flatMap(({ PolicyDocument }) => PolicyDocument.Statement);
}

const statementsOf = (props: Parameters<typeof made>[0]) => statements(deployed(made(props)).resources);

/** The statements that the options add to those of the default. */
const added = (props: Parameters<typeof made>[0]) => {
  const before = statementsOf({}).map((statement) => JSON.stringify(statement));
  return statementsOf(props).filter((statement) => !before.includes(JSON.stringify(statement)));
};

test('with every option, cfn-lint finds nothing', () => {
  const path = join(scratch(), 'template.json');
  writeFileSync(path, JSON.stringify(made(everything).template().toJSON()));
  assert.equal(lint(path), '');
});

test('both queues deny requests without TLS, and SNS may still deliver', () => {
  const deny = (queue: string) => ({
    Action: 'sqs:*',
    Condition: { Bool: { 'aws:SecureTransport': 'false' } },
    Effect: 'Deny',
    Principal: { AWS: '*' },
    Resource: `<${queue}.Arn>`,
  });
  const policies = (props: Parameters<typeof made>[0]) =>
    Object.fromEntries(
      of(deployed(made(props)).resources, 'AWS::SQS::QueuePolicy').map(([, { properties }]) => {
        const { Queues: [queue], PolicyDocument } = properties as { Queues: [string]; PolicyDocument: { Statement: { Effect: string }[] } };
        return [queue, PolicyDocument.Statement];
      }),
    );
  assert.deepEqual(policies({ enforceTls: true }), { '<Queue>': [deny('Queue')], '<DeadLetterQueue>': [deny('DeadLetterQueue')] });
  const topic = (stack: Stack) => ({ enforceTls: true, topic: new sns.Topic(stack, 'Topic') });
  for (const all of Object.values(policies(topic))) assert.deepEqual(all.map(({ Effect }) => Effect).sort(), ['Allow', 'Deny']);
  assert.deepEqual(policies({}), {});
});

test('the key of the log group allows CloudWatch Logs, for this group only', () => {
  const { resources } = deployed(made((stack) => ({ name: 'orders', logKmsKey: new kms.Key(stack, 'Key') })));
  const [[key, { properties }] = assert.fail()] = of(resources, 'AWS::KMS::Key');
  assert.equal(resources['LogGroup']!.properties['KmsKeyId'], `<${key}.Arn>`);
  const { Statement: [account, logs, ...more] } = properties['KeyPolicy'] as { Statement: any[] };
  assert.equal(account.Action, 'kms:*');
  assert.deepEqual(logs.Principal, { Service: 'logs.eu-west-1.amazonaws.com' });
  assert.deepEqual(logs.Condition, {
    ArnEquals: { 'kms:EncryptionContext:aws:logs:arn': 'arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/orders' },
  });
  assert.deepEqual(more, []);
});

test('the role may decrypt the variables with their key', () => {
  const props = (stack: Stack) => ({ environmentKmsKey: new kms.Key(stack, 'Key') });
  const { resources } = deployed(made(props));
  const [[key] = assert.fail()] = of(resources, 'AWS::KMS::Key');
  assert.equal(resources['Function']!.properties['KmsKeyArn'], `<${key}.Arn>`);
  assert.deepEqual(added(props), [{ Action: 'kms:Decrypt', Effect: 'Allow', Resource: `<${key}.Arn>` }]);
});

test('the function uses a given table, and decrypts with its key', () => {
  const partitionKey = { name: 'id', type: dynamodb.AttributeType.STRING };
  const own = (stack: Stack) => new dynamodb.Table(stack, 'Limits', { partitionKey, encryptionKey: new kms.Key(stack, 'Key') });
  const global = (stack: Stack) => new dynamodb.TableV2(stack, 'Limits', { partitionKey });
  for (const [table, key] of [[own, true], [global, false]] as const) {
    const props = (stack: Stack) => ({ sharedTable: table(stack), maxConcurrency: 30 });
    const { resources } = deployed(made(props));
    const [[id] = assert.fail(), ...more] = [...of(resources, 'AWS::DynamoDB::Table'), ...of(resources, 'AWS::DynamoDB::GlobalTable')];
    assert.deepEqual(more, []);
    const { Variables: variables } = resources['Function']!.properties['Environment'] as { Variables: Record<string, string> };
    assert.deepEqual([variables['REQUEUE_TABLE'], variables['REQUEUE_MAX_ENVIRONMENTS']], [`<${id}>`, '30']);
    const [[keyId] = ['']] = of(resources, 'AWS::KMS::Key');
    assert.deepEqual(added(props), [
      { Action: ['dynamodb:GetItem', 'dynamodb:UpdateItem'], Effect: 'Allow', Resource: `<${id}.Arn>` },
      ...(key ? [{ Action: 'kms:Decrypt', Effect: 'Allow', Resource: `<${keyId}.Arn>` }] : []),
    ]);
  }
});

test('with a table, the batching window is at least a second', () => {
  const window = (props: Partial<RetryQueueProps>) => deployed(made({ sharedTable: 'dynamodb', ...props })).resources['Messages']!.properties['MaximumBatchingWindowInSeconds'];
  assert.deepEqual([window({}), window({ maxBatchingWindow: Duration.seconds(0) }), window({ maxBatchingWindow: Duration.seconds(2) })], ['1', '1', '2']);
  assert.equal(window({ sharedTable: 'none' }), '0');
});

test('the role may send traces', () => {
  const { resources } = deployed(made({ tracing: lambda.Tracing.ACTIVE }));
  assert.deepEqual(resources['Function']!.properties['TracingConfig'], { Mode: 'Active' });
  assert.deepEqual(added({ tracing: lambda.Tracing.ACTIVE }), [
    { Action: ['xray:PutTraceSegments', 'xray:PutTelemetryRecords'], Effect: 'Allow', Resource: '*' },
  ]);
  assert.deepEqual(added({ tracing: lambda.Tracing.DISABLED }), []);
});

test('only Lambda itself may use the role for network interfaces', () => {
  const [statement, ...more] = added((stack) => ({ vpc: new ec2.Vpc(stack, 'Vpc') }));
  assert.deepEqual(more, []);
  assert.equal(statement.Action.length, 6);
  assert.deepEqual(statement.Condition, { Null: { 'lambda:SourceFunctionArn': 'true' } });
});

test('the function is in private subnets of the VPC, with a security group of its own unless given', () => {
  const { resources } = deployed(made((stack) => ({ vpc: new ec2.Vpc(stack, 'Vpc') })));
  const { SubnetIds: subnets, SecurityGroupIds: groups } = resources['Function']!.properties['VpcConfig'] as Record<string, string[]>;
  assert.equal(subnets!.length, 2);
  for (const subnet of subnets!) assert.match(subnet, /PrivateSubnet/);
  assert.deepEqual(groups, ['<FunctionSecurityGroup.GroupId>']);
});

test('subnets without a way to SQS are named in a warning', () => {
  const warnings = (endpoint: 'SQS' | 'SNS' | undefined, subnetType: ec2.SubnetType) => {
    const { stack } = made((stack) => {
      const vpc = new ec2.Vpc(stack, 'Vpc', { natGateways: subnetType === ec2.SubnetType.PRIVATE_ISOLATED ? 0 : 1, subnetConfiguration: [
        { name: 'Public', subnetType: ec2.SubnetType.PUBLIC },
        { name: 'Function', subnetType },
      ] });
      return { vpc, vpcSubnets: { subnetType } };
    });
    // Made after the construct, so that only the synthesis can know it.
    const vpc = stack.node.findChild('Vpc') as ec2.Vpc;
    if (endpoint) new ec2.InterfaceVpcEndpoint(stack, 'Endpoint', { vpc, service: ec2.InterfaceVpcEndpointAwsService[endpoint] });
    return Annotations.fromStack(stack).findWarning('*', Match.stringLikeRegexp('no route out of the VPC')).length;
  };
  const { PRIVATE_ISOLATED, PRIVATE_WITH_EGRESS } = ec2.SubnetType;
  assert.equal(warnings(undefined, PRIVATE_ISOLATED), 1);
  assert.equal(warnings('SNS', PRIVATE_ISOLATED), 1);
  assert.equal(warnings('SQS', PRIVATE_ISOLATED), 0);
  assert.equal(warnings(undefined, PRIVATE_WITH_EGRESS), 0);
});

test('with a table, subnets without a way to DynamoDB are named in a warning', () => {
  const warnings = (endpoint: boolean, sharedTable: 'none' | 'dynamodb') => {
    const { stack } = made((stack) => {
      const subnetType = ec2.SubnetType.PRIVATE_ISOLATED;
      const vpc = new ec2.Vpc(stack, 'Vpc', { natGateways: 0, subnetConfiguration: [{ name: 'Function', subnetType }] });
      vpc.addInterfaceEndpoint('Sqs', { service: ec2.InterfaceVpcEndpointAwsService.SQS });
      if (endpoint) vpc.addGatewayEndpoint('Table', { service: ec2.GatewayVpcEndpointAwsService.DYNAMODB });
      return { vpc, vpcSubnets: { subnetType }, sharedTable };
    });
    return Annotations.fromStack(stack).findWarning('*', Match.stringLikeRegexp('no gateway endpoint for DynamoDB')).length;
  };
  assert.deepEqual([warnings(false, 'dynamodb'), warnings(true, 'dynamodb'), warnings(false, 'none')], [1, 0, 0]);
});

test('the reserved concurrency is the maximum concurrency of the mapping', () => {
  const reserved = (props: Partial<RetryQueueProps>) => deployed(made(props)).resources['Function']!.properties['ReservedConcurrentExecutions'];
  assert.equal(reserved({ reserveConcurrency: true }), '10');
  assert.equal(reserved({ reserveConcurrency: true, maxConcurrency: 50 }), '50');
  assert.equal(reserved({ reserveConcurrency: false }), undefined);
});

test('the mapping counts events', () => {
  const { resources } = deployed(made({ mappingMetrics: true }));
  assert.deepEqual(resources['Messages']!.properties['MetricsConfig'], { Metrics: ['EventCount'] });
});

test('every role has the boundary and the path', () => {
  const { resources } = deployed(
    made((stack) => ({
      permissionsBoundary: iam.ManagedPolicy.fromManagedPolicyArn(stack, 'Boundary', 'arn:aws:iam::123456789012:policy/developers'),
      rolePath: '/service/',
      deployment: CANARY_10PERCENT_5MINUTES,
    })),
  );
  const roles = of(resources, 'AWS::IAM::Role');
  assert.deepEqual(roles.map(([id]) => id).sort(), ['DeploymentRole', 'Role']);
  for (const [, { properties }] of roles) {
    assert.equal(properties['PermissionsBoundary'], 'arn:aws:iam::123456789012:policy/developers');
    assert.equal(properties['Path'], '/service/');
  }
});

test('CodeDeploy moves the alias of the mapping, and an alarm on the new version moves it back', () => {
  const all = made({ name: 'orders', deployment: CANARY_10PERCENT_5MINUTES, maxConcurrency: 3 });
  const { resources } = deployed(all);
  const [[version, { properties: published, policies }] = assert.fail()] = of(resources, 'AWS::Lambda::Version');
  assert.equal(published['FunctionName'], '<Function>');
  assert.deepEqual(policies, { deletion: 'RetainExceptOnCreate', updateReplace: 'Retain' });
  assert.deepEqual(resources['Alias']!.properties, { Name: 'live', FunctionName: '<Function>', FunctionVersion: `<${version}.Version>` });
  assert.equal(resources['Messages']!.properties['FunctionName'], '<Alias.6>:live');

  const group = resources['Deployment']!.properties as Record<string, any>;
  assert.equal(group['DeploymentConfigName'], 'CodeDeployDefault.LambdaCanary10Percent5Minutes');
  assert.deepEqual(group['AutoRollbackConfiguration'].Events.sort(), ['DEPLOYMENT_FAILURE', 'DEPLOYMENT_STOP_ON_ALARM']);
  assert.deepEqual(group['AlarmConfiguration'], { Alarms: [{ Name: '<NewVersionErrorsAlarm>' }], Enabled: true });
  const alarm = resources['NewVersionErrorsAlarm']!.properties as { Dimensions: { Name: string; Value: string }[] };
  assert.deepEqual(Object.fromEntries(alarm.Dimensions.map(({ Name, Value }) => [Name, Value])), {
    FunctionName: '<Function>',
    Resource: '<Function>:live',
    ExecutedVersion: `<${version}.Version>`,
  });

  // The version before may have another dead-letter mode.
  const granted = resources['Role']!.properties['Policies'] as { PolicyName: string }[];
  assert.deepEqual(granted.map(({ PolicyName }) => PolicyName).sort(), ['DeadLetters', 'Function']);

  // The update policy names the group, and the alias waits for it and for the alarm.
  const raw = (all.template().toJSON() as Template).Resources as Record<string, any>;
  const [alias] = Object.values(raw).filter(({ Type }) => Type === 'AWS::Lambda::Alias');
  const [groupId] = Object.entries(raw).find(([, { Type }]) => Type === 'AWS::CodeDeploy::DeploymentGroup')!;
  assert.deepEqual(alias.UpdatePolicy.CodeDeployLambdaAliasUpdate.DeploymentGroupName, { Ref: groupId });
  assert.ok(alias.DependsOn.includes(groupId));
  // The command in the alarms finds the mapping.
  assert.match(resources['ThrottlesAlarm']!.properties['AlarmDescription'] as string, /`requeue doctor --function <Function>:live` compares/);
  assert.equal(all.construct.alias?.aliasName, 'live');
});

/** The functions that were made, by the id of their version. */
const functions = new Map<string, string>();

/** The id of the version. Two setups have the same one if, and only if, their functions are the same. */
function version(props: Parameters<typeof made>[0]): string {
  const { stack, template } = made((stack) => ({ deployment: CANARY_10PERCENT_5MINUTES, ...(typeof props === 'function' ? props(stack) : props) }));
  const [[id] = assert.fail(), ...others] = Object.entries(template().findResources('AWS::Lambda::Version'));
  assert.deepEqual(others, [], stack.node.path);
  // Lambda refuses to publish a version of an unchanged function. The reserved concurrency is no part of one.
  const [{ Properties: { ReservedConcurrentExecutions: _, ...its } } = assert.fail()] = Object.values(template().findResources('AWS::Lambda::Function'));
  const properties = JSON.stringify(its);
  assert.equal(functions.get(id) ?? properties, properties, 'another function with the same version');
  assert.ok([...functions].every(([other, known]) => other === id || known !== properties), 'the same function with another version');
  functions.set(id, properties);
  return id;
}

test('a change of the function makes a new version, and another change none', () => {
  // Lambda refuses to publish a version that equals the one before.
  assert.equal(version({}), version({ retentionPeriod: Duration.days(8), reserveConcurrency: true, alarmEmail: 'ops@example.com' }));
  assert.notEqual(version({}), version({ mode: 'report' }));
});

test('a replaced resource of the function makes a new version', () => {
  const own = (props: (stack: Stack) => Partial<lambda.FunctionProps>, options: Partial<RetryQueueProps> = {}) => (stack: Stack) => ({
    ...OWN,
    handler: handler(stack, props(stack)),
    ...options,
  });
  const role = (props: object) => own((stack) => ({ role: new iam.Role(stack, 'Own', { assumedBy: new iam.ServicePrincipal('lambda.amazonaws.com'), ...props }) }));
  const logGroup = (logGroupName?: string) => own((stack) => ({ logGroup: new logs.LogGroup(stack, 'Own', { logGroupName }) }));
  const direct: Partial<RetryQueueProps> = { ...FIFO, fifo: false };
  const secret = (secretName: string) => (stack: Stack) => {
    const given = new secretsmanager.Secret(stack, 'Secret', { secretName });
    return { secrets: [given], signingSecret: given.secretArn };
  };
  const secrets = (...secretNames: string[]) => (stack: Stack) => ({
    secrets: secretNames.map((secretName) => new secretsmanager.Secret(stack, secretName, { secretName })),
  });
  const named = (resource: (stack: Stack) => CfnResource) => own((stack) => ({ environment: { RESOURCE: resource(stack).ref } }));
  const keySchema = [{ attributeName: 'id', keyType: 'HASH' }];
  const table = (tableName: string) => named((stack) => new dynamodb.CfnTable(stack, 'Table', { tableName, keySchema }));
  const globalTable = (tableName: string) =>
    named((stack) => new dynamodb.CfnGlobalTable(stack, 'Table', { tableName, keySchema, attributeDefinitions: [], replicas: [] }));
  const later = (tableName: string) => (stack: Stack) => {
    const given = own(() => ({}))(stack);
    given.handler.addEnvironment('TABLE', new dynamodb.CfnTable(stack, 'Table', { tableName, keySchema }).ref);
    return given;
  };
  const api = (name: string) => named((stack) => new apigatewayv2.CfnApi(stack, 'Api', { name }));
  const parameter = (parameterName: string) => (stack: Stack) => {
    const given = new ssm.StringParameter(stack, 'Parameter', { parameterName, stringValue: '{}' });
    return { parameters: [given], policy: given.parameterArn };
  };
  const different: [Parameters<typeof made>[0], Parameters<typeof made>[0]][] = [
    [{}, { rolePath: '/service/' }],
    [{ rolePath: '/service/' }, { rolePath: '/shop/' }],
    [{ name: 'orders' }, { name: 'bills' }],
    [direct, FIFO],
    [secret('old'), secret('new')],
    [parameter('/old'), parameter('/new')],
    [role({}), role({ path: '/service/' })],
    [role({}), role({ roleName: 'charge' })],
    [role({ roleName: `charge-${Aws.REGION}` }), role({ roleName: `bill-${Aws.REGION}` })],
    [secret(`old-${Aws.REGION}`), secret(`new-${Aws.REGION}`)],
    [table('old'), table('new')],
    [globalTable('old'), globalTable('new')],
    [later('old'), later('new')],
    [logGroup(), logGroup('charge')],
    [own(() => ({}), { ...direct, name: 'orders' }), own(() => ({}), { ...direct, name: 'bills' })],
    [own(() => ({}), direct), own(() => ({}), FIFO)],
  ];
  for (const [index, [before, after]] of different.entries()) assert.notEqual(version(before), version(after), `different[${index}]`);
  // The function does not refer to these.
  const same: typeof different = [
    [{ ...direct, deadLetterMode: 'redrive' }, { ...FIFO, deadLetterMode: 'redrive' }],
    [own(() => ({}), { name: 'orders' }), own(() => ({}), { name: 'bills' })],
    [role({}), role({ description: 'charges' })],
    // A secret is added before the function uses it, and removed after that.
    [secrets('old'), secrets('old', 'new')],
    [secrets('old', 'new'), secrets('new', 'old')],
    // CloudFormation renames this one in its place.
    [api('old'), api('new')],
  ];
  for (const [index, [before, after]] of same.entries()) assert.equal(version(before), version(after), `same[${index}]`);
});

test('a name that only the deployment knows does not fail the synthesis', () => {
  const name = (stack: Stack) => new CfnParameter(stack, 'Name').valueAsString;
  version((stack) => {
    const given = new secretsmanager.Secret(stack, 'Secret', { secretName: name(stack) });
    return { secrets: [given], signingSecret: given.secretArn };
  });
});

test('a handler of your own is deployed gradually too', () => {
  const { resources } = deployed(
    made((stack) => ({
      targetUrl: undefined,
      code: undefined,
      deployment: CANARY_10PERCENT_5MINUTES,
      rolePath: '/service/',
      handler: handler(stack),
    })),
  );
  assert.equal(resources['Messages']!.properties['FunctionName'], '<Alias.6>:live');
  assert.equal(resources['DeploymentRole']!.properties['Path'], '/service/');
  // The version is a part of the function, outside of the construct.
  const [[, { policies }] = assert.fail()] = of(resources, 'AWS::Lambda::Version');
  assert.deepEqual(policies, { deletion: 'RetainExceptOnCreate', updateReplace: 'Retain' });
});

test('a tag reaches everything that can have one', () => {
  const all = made(everything);
  Tags.of(all.construct).add('team', 'shop');
  const { resources } = deployed(all);
  const own = all.construct.node.findAll().filter(CfnResource.isCfnResource).map(({ cfnResourceType }) => cfnResourceType);
  const tagged = Object.values(resources).filter(({ properties: { Tags: tags } }) => JSON.stringify(tags)?.includes('"team"')).map(({ type }) => type);
  const untagged = [...new Set(own)].filter((type) => !tagged.includes(type)).sort();
  assert.deepEqual(untagged, [
    'AWS::IAM::Policy',
    'AWS::Lambda::Alias',
    'AWS::Lambda::Version',
    'AWS::SNS::Subscription',
    'AWS::SNS::TopicPolicy',
    'AWS::SQS::QueuePolicy',
  ]);
});

test('impossible options are refused, with the remedy', () => {
  const key = (stack: Stack) => kms.Alias.fromAliasName(stack, 'Alias', 'alias/orders');
  const signing = (stack: Stack) => lambda.CodeSigningConfig.fromCodeSigningConfigArn(stack, 'Signing', SIGNING);
  const table: [(stack: Stack) => Partial<RetryQueueProps>, RegExp][] = [
    [(stack) => ({ securityGroups: [ec2.SecurityGroup.fromSecurityGroupId(stack, 'Group', 'sg-1')] }), /securityGroups belongs to a VPC, .*: give vpc, or leave it out$/],
    [() => ({ vpcSubnets: { subnetType: ec2.SubnetType.PRIVATE_ISOLATED } }), /vpcSubnets belongs to a VPC/],
    [(stack) => ({ encryptionKey: key(stack) }), /encryptionKey is an alias, .*: give the key itself/],
    [(stack) => ({ otherEncryptionKeys: [key(stack)] }), /otherEncryptionKeys is an alias/],
    [(stack) => ({ environmentKmsKey: new kms.Alias(stack, 'A', { aliasName: 'alias/a', targetKey: new kms.Key(stack, 'K') }) }), /environmentKmsKey is an alias/],
    [(stack) => ({ logKmsKey: key(stack) }), /logKmsKey is an alias/],
    [(stack) => ({ ...FIFO, topic: new sns.Topic(stack, 'In') }), /topic is a standard topic, .*: give a FIFO topic, or a standard queue$/],
    [(stack) => ({ ...FIFO, topic: sns.Topic.fromTopicArn(stack, 'In', TOPIC) }), /topic is a standard topic/],
    [() => ({ rolePath: 'service' }), /rolePath is "service": begin and end it with a slash/],
    [() => ({ rolePath: '/a b/' }), /rolePath is "\/a b\/"/],
    [() => ({ rolePath: `/${'a'.repeat(511)}/` }), /at most 512 characters$/],
    [(stack) => ({ codeSigningConfig: signing(stack) }), /codeSigningConfig asks for signed code, and \S+ is a directory, .*: give code the signed zip/],
    [(stack) => ({ codeSigningConfig: signing(stack), code: undefined }), /and target\/lambda\/requeue-lambda, the default of code, is a directory/],
    [(stack) => ({ ...OWN, handler: handler(stack), rolePath: '/service/' }), /rolePath is for roles that the construct makes, .*: set it at the handler's role$/],
    [(stack) => ({ ...OWN, handler: handler(stack), tracing: lambda.Tracing.ACTIVE }), /tracing is no option for handler: leave it out, and set it at the handler$/],
    [(stack) => ({ ...OWN, handler: handler(stack, { reservedConcurrentExecutions: 9 }) }), /the handler's queues run up to 10 batches at a time, and the handler reserves 9 executions: .*: reserve at least 10/],
  ];
  for (const [props, problem] of table) {
    assert.throws(() => made(props), (error: Error) => {
      assert.match(error.message.split('\n').at(-1)!, problem);
      return true;
    });
  }
});

test('options at the limit are accepted', () => {
  for (const props of [
    () => ({ rolePath: '/' }),
    () => ({ rolePath: `/${'a'.repeat(510)}/` }),
    (stack: Stack) => ({ encryptionKey: kms.Alias.fromAliasName(stack, 'Alias', 'alias/aws/sqs') }),
    (stack: Stack) => ({ ...OWN, handler: handler(stack, { reservedConcurrentExecutions: 10 }) }),
    (stack: Stack) => ({ ...FIFO, topic: new sns.Topic(stack, 'In', { fifo: true }) }),
    (stack: Stack) => ({ ...FIFO, topic: sns.Topic.fromTopicArn(stack, 'In', `${TOPIC}.fifo`) }),
    (stack: Stack) => ({ ...FIFO, topic: sns.Topic.fromTopicArn(stack, 'In', new CfnParameter(stack, 'Arn').valueAsString) }),
  ]) {
    made(props);
  }
});

test('the queues of a handler share its reserved concurrency, and only one queue may be deployed gradually', () => {
  const { stack } = made();
  const own = handler(stack, { reservedConcurrentExecutions: 20 });
  new RetryQueue(stack, 'First', { handler: own });
  new RetryQueue(stack, 'Second', { handler: own });
  assert.throws(() => new RetryQueue(stack, 'Third', { handler: own }), /the handler's queues run up to 30 batches at a time, and the handler reserves 20/);
  assert.throws(
    () => new RetryQueue(stack, 'Fourth', { handler: own, deployment: CANARY_10PERCENT_5MINUTES }),
    /RetryQueue requeue\/Fourth cannot work:\n {2}deployment is for a function of one queue, .*: give each queue a function of its own, or leave deployment out$/,
  );
});

const SIGNING = 'arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-1234567890abcdef0';
const TOPIC = 'arn:aws:sns:eu-west-1:123456789012:orders';
const FIFO: Partial<RetryQueueProps> = { fifo: true, deadLetterMode: 'direct', maxReceiveCount: 100 };
const OWN = { targetUrl: undefined, code: undefined };

function handler(stack: Stack, props: Partial<lambda.FunctionProps> = {}): lambda.Function {
  const code = lambda.Code.fromInline('exports.handler = () => {}');
  const timeout = Duration.seconds(60);
  return new lambda.Function(stack, 'Charge', {
    runtime: lambda.Runtime.NODEJS_22_X,
    handler: 'index.handler',
    code,
    timeout,
    ...props,
  });
}
