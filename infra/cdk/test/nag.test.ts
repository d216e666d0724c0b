/** cdk-nag's rules for AWS solutions. Each finding has the reason why it stays, and no reason is left over. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as iam from 'aws-cdk-lib/aws-iam';
import { AwsSolutionsChecks } from 'cdk-nag';
import { everything, made } from './world.ts';

const TLS_IS_AN_OPTION =
  'Off by default, as in the SAM template: AWS’s SDKs use TLS anyway, and an update must not give queues a policy unasked. enforceTls adds it.';

/** By default, with an alarm topic. */
const BY_DEFAULT = {
  'AwsSolutions-SQS4 Queue': TLS_IS_AN_OPTION,
  'AwsSolutions-SQS4 DeadLetterQueue': TLS_IS_AN_OPTION,
  'AwsSolutions-SNS3 AlarmTopic': TLS_IS_AN_OPTION,
};

/** With every option. */
const WITH_EVERYTHING = {
  'AwsSolutions-IAM5[Resource::*] Role':
    'Lambda makes the network interfaces for the VPC, so their ARNs are not known before. A condition keeps the statement from the code.',
  'AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited] DeploymentRole':
    'AWS’s smaller policy for CodeDeploy, which CDK’s deployment group always attaches.',
  'AwsSolutions-DDB3 Table': 'No point-in-time recovery: a lost item is made anew by the next message, and an old one would be wrong.',
  'AwsSolutions-IAM5[Resource::*] Role/DefaultPolicy': 'X-Ray knows no resources for PutTraceSegments and PutTelemetryRecords.',
};

for (const [name, props, explained] of [
  ['by default', { alarmEmail: 'ops@example.com' }, BY_DEFAULT],
  ['with every option', everything, WITH_EVERYTHING],
] as const) {
  test(`each finding of cdk-nag is explained ${name}`, () => {
    const { stack, template } = made(props);
    template();
    const { violations } = new AwsSolutionsChecks().validateScope(stack);
    const found = violations.flatMap(({ ruleName, violatingResources }) =>
      violatingResources.map(({ constructPath }) => `${ruleName} ${constructPath?.replace('requeue/Orders/', '').replace('/Resource', '')}`),
    );
    assert.deepEqual(found.sort(), Object.keys(explained).sort());
  });
}

test('cdk-nag sees a role that is too wide', () => {
  const { stack, construct } = made();
  construct.function.addToRolePolicy(new iam.PolicyStatement({ actions: ['sqs:*'], resources: ['*'] }));
  const { violations } = new AwsSolutionsChecks().validateScope(stack);
  assert.ok(violations.some(({ ruleName }) => ruleName === 'AwsSolutions-IAM5[Action::sqs:*]'));
});
