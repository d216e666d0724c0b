/** Resources in one form, so that templates of different origin can be compared. */

import type { Policies, Resolved } from './resolved.ts';

export interface Shaped {
  readonly type: string;
  readonly policies: Policies;
  readonly counted: Record<string, any>;
}

/** The properties that count, in one form if there are several with the same meaning. */
export function shape({ resources }: Pick<Resolved, 'resources'>): Record<string, Shaped> {
  const shaped = Object.entries(resources).flatMap(([id, { type, policies, properties }]) => {
    // Left out: the package, and the tags that SAM adds.
    const { Code: _code, Tags: _tags, Subscription: subscriptions, ...counted } = plain(properties) as Record<string, any>;
    if (type === 'AWS::IAM::Role') counted['Policies'] = counted['Policies'].flatMap((policy: any) => policy.PolicyDocument.Statement.flatMap(each)).sort(byText);
    if (type === 'AWS::CloudWatch::Dashboard') counted['DashboardBody'] = JSON.parse(counted['DashboardBody']);
    // A topic's subscriptions are properties of it, or resources.
    const apart = (subscriptions ?? []).map((one: object) => ({ type: 'AWS::SNS::Subscription', policies, counted: { ...one, TopicArn: `<${id}>` } }));
    return [{ id, type, policies, counted }, ...apart].map((one) => [one.type === 'AWS::SNS::Subscription' ? `to ${one.counted.Endpoint}` : one.id, one]);
  });
  return Object.fromEntries(shaped.map(([id, { type, policies, counted }]) => [id, { type, policies, counted }]));
}

/** A statement for each resource. */
const each = (statement: any) => statement.Resource.map((one: unknown) => ({ ...statement, Resource: one }));

const byText = (one: unknown, other: unknown) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1);

function plain(node: any): unknown {
  if (Array.isArray(node)) return node.map(plain);
  if (typeof node !== 'object') return node;
  const members = Object.entries<any>(node).flatMap(([name, member]): [string, unknown][] => {
    if (Array.isArray(member) && member.length === 0) return [];
    switch (name) {
      case 'Sid':
        return [];
      // CDK writes the region of an imported topic, here that of the stack.
      case 'Region':
        return member === 'eu-west-1' ? [] : [[name, member]];
      case 'Action':
      case 'Resource':
        return [[name, [member].flat().sort()]];
      case 'Dimensions':
        return [[name, Object.fromEntries(member.map((dimension: any) => [dimension.Name, dimension.Value]))]];
      case 'Metrics':
        return [[name, metrics(member)]];
      default:
        return [[name, plain(member)]];
    }
  });
  return Object.fromEntries(members);
}

/** Metrics by their ids. The id of the returned one does not matter. */
function metrics(list: any[]): unknown {
  const named = list.map(({ Id, ReturnData = true, ...metric }) => [ReturnData ? 'returned' : Id, plain(metric)]);
  return Object.fromEntries(named);
}
