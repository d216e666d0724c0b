/**
 * The way of a function in a VPC to SQS.
 */

import { Annotations, Aspects } from 'aws-cdk-lib';
import * as ec2 from 'aws-cdk-lib/aws-ec2';
import type { Construct } from 'constructs';

/**
 * Warns if the subnets have no route out of the VPC, and the application makes no endpoint for SQS in
 * it. A warning only: an imported VPC may have an endpoint that CDK does not see.
 */
export function warnIfCutOff(scope: Construct, vpc: ec2.IVpc, subnets: ec2.SubnetSelection | undefined): void {
  const isolated = new Set(vpc.isolatedSubnets.map(({ subnetId }) => subnetId));
  if (!vpc.selectSubnets(subnets).subnetIds.some((id) => isolated.has(id))) return;
  // At synthesis, when the application has made all its endpoints.
  Aspects.of(scope).add({
    visit(node) {
      if (node !== scope || hasEndpoint(scope, vpc)) return;
      Annotations.of(scope).addWarningV2(
        'requeue:noWayToSqs',
        'the subnets of the function have no route out of the VPC, and the application makes no interface endpoint for SQS there, so the ' +
          'function could send no retry: add ec2.InterfaceVpcEndpointAwsService.SQS to the VPC, or give vpcSubnets with a NAT gateway',
      );
    },
  });
}

function hasEndpoint(scope: Construct, { vpcId }: ec2.IVpc): boolean {
  const endpoints = scope.node.root.node.findAll().filter((node) => node instanceof ec2.CfnVPCEndpoint);
  // The name may contain a reference to the region.
  const name = ({ stack, serviceName }: ec2.CfnVPCEndpoint) => JSON.stringify(stack.resolve(serviceName));
  return endpoints.some((endpoint) => endpoint.vpcId === vpcId && /\.sqs"/.test(name(endpoint)));
}
