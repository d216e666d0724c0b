/**
 * For all tests: a build of the function, stacks with the construct, and the SAM template as
 * CloudFormation.
 */

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after } from 'node:test';
import { App, CfnResource, Stack } from 'aws-cdk-lib';
import * as codedeploy from 'aws-cdk-lib/aws-codedeploy';
import * as ec2 from 'aws-cdk-lib/aws-ec2';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as s3 from 'aws-cdk-lib/aws-s3';
import * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import * as sns from 'aws-cdk-lib/aws-sns';
import { Template as Assertions } from 'aws-cdk-lib/assertions';
import { RetryQueue, type RetryQueueProps } from '../lib/index.ts';
import { type Resolved, resolved, type Template } from './resolved.ts';

export const ROOT = resolve(import.meta.dirname, '../../..');
export const HERE = resolve(import.meta.dirname, '..');

// CDK's own linter takes seconds each time, so it runs only in the test of the example application.
process.env['CDK_VALIDATION'] = 'false';

/** Python with SAM's translator, and cfn-lint. */
const SAM = resolve(ROOT, process.env['REQUEUE_TEST_TOOLS'] ?? 'target/tools', 'sam/bin');

/** A directory that is removed when the tests of the file have ended. */
export function scratch(): string {
  const directory = mkdtempSync(join(tmpdir(), 'requeue-cdk-'));
  after(() => rmSync(directory, { recursive: true }));
  return directory;
}

/** The head of an executable for the processor; nothing runs it. */
export function build(directory: string, machine: number): string {
  mkdirSync(directory, { recursive: true });
  const header = Buffer.alloc(20);
  header.write('\x7fELF', 'latin1');
  header.writeUInt16LE(machine, 18);
  writeFileSync(join(directory, 'bootstrap'), header);
  return directory;
}

export const ARM = 0xb7;
export const X86 = 0x3e;

export const TARGET = 'https://api.example.com/orders';
const CODE = build(scratch(), ARM);

/** A stack with the construct. */
export function made(props: Partial<RetryQueueProps> | ((stack: Stack) => Partial<RetryQueueProps>) = {}) {
  const stack = new Stack(new App(), 'requeue');
  const given = typeof props === 'function' ? props(stack) : props;
  const construct = new RetryQueue(stack, 'Orders', { targetUrl: TARGET, code: lambda.Code.fromAsset(CODE), ...given });
  return { stack, construct, template: () => Assertions.fromStack(stack) };
}

/** The stack as it is deployed. Resources have their ids in the construct. */
export function deployed({ stack, construct, template }: ReturnType<typeof made>): Resolved {
  const ids = construct.node.findAll().filter(CfnResource.isCfnResource);
  const names = Object.fromEntries(
    ids.map((resource) => [
      stack.resolve(resource.logicalId) as string,
      resource.node.path.replace(`${construct.node.path}/`, '').replace('/Resource', '').replaceAll('/', ''),
    ]),
  );
  return resolved(template().toJSON() as Template, { stackName: stack.stackName, names });
}

/** Every option that adds a resource or a permission. */
export function everything(stack: Stack): Partial<RetryQueueProps> {
  const key = new kms.Key(stack, 'Key', { enableKeyRotation: true });
  const vpc = ec2.Vpc.fromVpcAttributes(stack, 'Vpc', {
    vpcId: 'vpc-0a1b2c3d4e5f60718',
    availabilityZones: ['eu-west-1a', 'eu-west-1b'],
    privateSubnetIds: ['subnet-0a1b2c3d4e5f60718', 'subnet-1a2b3c4d5e6f70819'],
  });
  return {
    sharedTable: 'dynamodb',
    deadLetterMode: 'direct',
    encryptionKey: key,
    enforceTls: true,
    topic: new sns.Topic(stack, 'Topic', { enforceSSL: true, masterKey: key }),
    secrets: [secretsmanager.Secret.fromSecretNameV2(stack, 'Secret', 'orders')],
    vpc,
    tracing: lambda.Tracing.ACTIVE,
    environmentKmsKey: key,
    logKmsKey: key,
    codeSigningConfig: lambda.CodeSigningConfig.fromCodeSigningConfigArn(
      stack,
      'Signing',
      'arn:aws:lambda:eu-west-1:123456789012:code-signing-config:csc-1234567890abcdef0',
    ),
    code: lambda.Code.fromBucketV2(s3.Bucket.fromBucketName(stack, 'Signed', 'signed-code'), 'requeue.zip'),
    permissionsBoundary: iam.ManagedPolicy.fromManagedPolicyArn(stack, 'Boundary', 'arn:aws:iam::123456789012:policy/developers'),
    rolePath: '/service/',
    reserveConcurrency: true,
    mappingMetrics: true,
    deployment: codedeploy.LambdaDeploymentConfig.CANARY_10PERCENT_5MINUTES,
    alarmEmail: 'ops@example.com',
  };
}

let translated: Template | undefined;

/** `template.yaml`, as SAM translates it. */
export function samTemplate(): Template {
  const script = 'import json, stack; print(json.dumps(stack.cloudformation()))';
  const env = { ...process.env, PYTHONPATH: join(ROOT, 'tests/template'), PYTHONDONTWRITEBYTECODE: '1' };
  translated ??= JSON.parse(execFileSync(join(SAM, 'python'), ['-c', script], { env, encoding: 'utf8', maxBuffer: 1e8 })) as Template;
  return translated;
}

/** cfn-lint's findings, without W3005 about a `DependsOn` that CDK always writes. */
export function lint(template: string): string {
  try {
    return execFileSync(join(SAM, 'cfn-lint'), ['--regions', 'us-east-1', '--ignore-checks', 'W3005', '--template', template], { encoding: 'utf8' });
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}
