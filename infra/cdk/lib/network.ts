/**
 * The way of a function in a VPC to the services of AWS that it calls.
 */

import { Annotations, Aspects } from 'aws-cdk-lib';
import * as ec2 from 'aws-cdk-lib/aws-ec2';
import type { Construct } from 'constructs';

/** What a service is for, and how to reach it. */
const SERVICES = {
  sqs: {
    id: 'requeue:noWayToSqs',
    text:
      'makes no interface endpoint for SQS there, so the function could send no retry: ' +
      'add ec2.InterfaceVpcEndpointAwsService.SQS to the VPC, or give vpcSubnets with a NAT gateway',
  },
  lambda: {
    id: 'requeue:noWayToLambda',
    text:
      'makes no interface endpoint for Lambda there, so the function could not invoke targetFunction: ' +
      'add ec2.InterfaceVpcEndpointAwsService.LAMBDA to the VPC, or give vpcSubnets with a NAT gateway',
  },
  dynamodb: {
    id: 'requeue:noWayToDynamoDb',
    text:
      'makes no gateway endpoint for DynamoDB there, so the function could not use the shared table: ' +
      'add ec2.GatewayVpcEndpointAwsService.DYNAMODB to the VPC, or give vpcSubnets with a NAT gateway',
  },
};

/**
 * Warns if the subnets have no route out of the VPC, and the application makes no endpoint for a service
 * in it. A warning only: an imported VPC may have an endpoint that CDK does not see.
 */
export function warnIfCutOff(scope: Construct, vpc: ec2.IVpc, subnets: ec2.SubnetSelection | undefined, services: readonly (keyof typeof SERVICES)[]): void {
  const isolated = new Set(vpc.isolatedSubnets.map(({ subnetId }) => subnetId));
  if (!vpc.selectSubnets(subnets).subnetIds.some((id) => isolated.has(id))) return;
  // At synthesis, when the application has made all its endpoints.
  Aspects.of(scope).add({
    visit(node) {
      if (node !== scope) return;
      for (const service of services.filter((name) => !hasEndpoint(scope, vpc, name))) {
        const { id, text } = SERVICES[service];
        Annotations.of(scope).addWarningV2(id, `the subnets of the function have no route out of the VPC, and the application ${text}`);
      }
    },
  });
}

function hasEndpoint(scope: Construct, { vpcId }: ec2.IVpc, service: string): boolean {
  const endpoints = scope.node.root.node.findAll().filter((node) => node instanceof ec2.CfnVPCEndpoint);
  // The name may contain a reference to the region.
  const name = ({ stack, serviceName }: ec2.CfnVPCEndpoint) => JSON.stringify(stack.resolve(serviceName));
  return endpoints.some((endpoint) => endpoint.vpcId === vpcId && name(endpoint).includes(`.${service}"`));
}
