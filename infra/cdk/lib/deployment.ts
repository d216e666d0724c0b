/**
 * Gradual deployment: an alias for the mapping, which CodeDeploy moves from version to version.
 */

import { createHash } from 'node:crypto';
import { CfnResource, Lazy, RemovalPolicy, Stack, Token } from 'aws-cdk-lib';
import type * as cloudwatch from 'aws-cdk-lib/aws-cloudwatch';
import * as codedeploy from 'aws-cdk-lib/aws-codedeploy';
import * as iam from 'aws-cdk-lib/aws-iam';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import type { Construct } from 'constructs';
import { alarm } from './alarms.ts';
import type { Completed } from './props.ts';
import { TABLE } from './table.ts';

/** The alias that the event source mapping invokes. */
export const LIVE = 'live';

/** The alias, and the group that CodeDeploy moves it by. */
export interface Gradual {
  readonly alias: lambda.Alias;
  readonly deploymentGroup: codedeploy.LambdaDeploymentGroup;
}

/** Makes CodeDeploy move the alias to each new version. */
export function gradual(
  scope: Construct,
  made: lambda.Function,
  deploymentConfig: codedeploy.ILambdaDeploymentConfig,
  options: Completed,
): Gradual {
  describe(made);
  const version = made.currentVersion;
  // The version before stays, so that the alias can point there again. A version whose deployment
  // failed does not: Lambda would refuse to publish the same code again.
  version.applyRemovalPolicy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE);
  const alias = new lambda.Alias(scope, 'Alias', { aliasName: LIVE, version });
  const deploymentGroup = new codedeploy.LambdaDeploymentGroup(scope, 'Deployment', {
    alias,
    deploymentConfig,
    alarms: [newVersionAlarm(scope, alias, options.runbookUrl)],
    role: new iam.Role(scope, 'DeploymentRole', {
      assumedBy: new iam.ServicePrincipal('codedeploy.amazonaws.com'),
      path: options.rolePath,
    }),
  });
  // The alarm must watch the new version before the alias moves there. CloudFormation does not
  // order by an update policy, which alone names the group.
  alias.node.addDependency(deploymentGroup);
  return { alias, deploymentGroup };
}

/** The longest description of a function. */
const MAX_DESCRIPTION = 256;

/**
 * Ends the function's description with a digest of its settings. CDK makes a new version if the
 * function's properties change in the template, and Lambda publishes one only if its own function has
 * changed. The digest makes the two agree:
 *
 * - If a resource is replaced to which the function refers, its name changes, and the reference in the
 *   template does not. Without a new version, the alias would keep the deleted resource.
 * - If somebody changed a setting and published a version by hand, the same change in the template is
 *   none to Lambda, except for the description.
 */
function describe(made: lambda.Function): void {
  const resource = made.node.defaultChild as lambda.CfnFunction;
  const { description = '' } = resource;
  resource.description = Lazy.string({
    produce: () => {
      const digest = `Settings ${createHash('sha256').update(settings(made)).digest('hex').slice(0, 12)}`;
      const text = Token.isUnresolved(description) ? description : description.slice(0, MAX_DESCRIPTION - digest.length - 1);
      return `${text} ${digest}`.trim();
    },
  });
}

/** The settings of the function, and the names of the resources to which they refer. */
function settings(made: lambda.Function): string {
  const stack = Stack.of(made);
  const { role, loggingConfig, environment, memorySize, timeout } = made.node.defaultChild as lambda.CfnFunction;
  const resolved = JSON.stringify(stack.resolve([role, loggingConfig, environment, memorySize, timeout]));
  const names = stack.node
    .findAll()
    .filter(CfnResource.isCfnResource)
    .filter((resource) => resource.cfnResourceType in NAMES && resource.stack === stack)
    .filter((resource) => resolved.includes(JSON.stringify(stack.resolve(resource.logicalId))))
    .flatMap(namesOf);
  return [resolved, ...names.sort()].join(' ');
}

/**
 * The properties of CloudFormation that name a resource, by its type. A change of one replaces the
 * resource. Other types keep theirs when they are renamed.
 */
const NAMES: Record<string, string[]> = {
  'AWS::DynamoDB::GlobalTable': ['tableName'],
  'AWS::DynamoDB::Table': ['tableName'],
  'AWS::IAM::Role': ['path', 'roleName'],
  'AWS::Logs::LogGroup': ['logGroupName'],
  'AWS::S3::Bucket': ['bucketName'],
  'AWS::SecretsManager::Secret': ['name'],
  'AWS::SNS::Topic': ['topicName'],
  'AWS::SQS::Queue': ['queueName'],
  'AWS::SSM::Parameter': ['name'],
};

/** The name of a resource. A part that only the deployment knows is in it as a reference. */
function namesOf(resource: CfnResource): string[] {
  const properties = Object(resource) as Record<string, unknown>;
  return NAMES[resource.cfnResourceType]!.flatMap((key) => {
    const name: unknown = resource.stack.resolve(properties[key]);
    return name === undefined ? [] : [`${key}=${JSON.stringify(name)}`];
  });
}

/**
 * The alarm that rolls back. It watches the new version only: CodeDeploy stops a deployment if an
 * alarm is on, so an alarm on the version before would stop its repair too. Lambda has this metric
 * while the alias points to two versions.
 */
function newVersionAlarm(scope: Construct, alias: lambda.Alias, runbookUrl: string): cloudwatch.Alarm {
  const { functionName } = alias.lambda;
  const values = { Function: functionName, Invoked: `${functionName}:${LIVE}`, Version: alias.version.version, RunbookUrl: runbookUrl };
  return alarm(scope, 'NewVersionErrorsAlarm', TABLE.newVersionErrors, TABLE.newVersionErrors.section!, values);
}
