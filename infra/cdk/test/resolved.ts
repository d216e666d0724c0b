/**
 * A CloudFormation template as it is deployed: with conditions decided and functions evaluated.
 * Resources have the names of the template.
 */

import { isDeepStrictEqual } from 'node:util';

export interface Template {
  readonly Parameters?: Record<string, { readonly Type: string; readonly Default?: unknown; readonly AllowedValues?: readonly unknown[]; readonly AllowedPattern?: string; readonly MinValue?: number; readonly MaxValue?: number }>;
  readonly Mappings?: Record<string, Record<string, Record<string, unknown>>>;
  readonly Conditions?: Record<string, unknown>;
  readonly Resources: Record<string, Resource>;
  readonly Outputs?: Record<string, { readonly Condition?: string; readonly Value: unknown; readonly Export?: { readonly Name: unknown } }>;
}

export interface Resource {
  readonly Type: string;
  readonly Condition?: string;
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
  readonly Properties?: Record<string, unknown>;
}

const NO_VALUE = Symbol('AWS::NoValue');

export interface Given {
  /** Values of the template's parameters; the others have their defaults. */
  readonly parameters?: Readonly<Record<string, string>>;
  readonly stackName: string;
  /** Other names for logical ids. */
  readonly names: Readonly<Record<string, string>>;
}

/** What becomes of a resource that is deleted, or replaced by an update. */
export interface Policies {
  readonly deletion: string;
  readonly updateReplace: string;
}

export interface Resolved {
  readonly resources: Record<string, { type: string; policies: Policies; properties: Record<string, unknown> }>;
  readonly outputs: Record<string, { value: unknown; exportName: unknown }>;
}

export function resolved(template: Template, given: Given): Resolved {
  const pseudo: Record<string, unknown> = {
    'AWS::NoValue': NO_VALUE,
    'AWS::Partition': 'aws',
    'AWS::Region': 'eu-west-1',
    'AWS::AccountId': '123456789012',
    'AWS::URLSuffix': 'amazonaws.com',
    'AWS::StackName': given.stackName,
  };
  const parameters = Object.entries(template.Parameters ?? {}).map(([name, { Type, Default }]) => {
    const text = given.parameters?.[name] ?? String(Default ?? '');
    return [name, Type === 'CommaDelimitedList' ? text.split(',') : text];
  });
  const values: Record<string, unknown> = { ...pseudo, ...Object.fromEntries(parameters) };
  const named = (id: string) => given.names[id] ?? id;
  const ref = (name: string): unknown => (name in values ? values[name] : `<${named(name)}>`);
  const attribute = (path: string | string[]) => {
    const [id, ...rest] = typeof path === 'string' ? path.split('.') : path;
    return `<${named(id!)}.${rest.join('.')}>`;
  };
  const holds = (name: string) => value(template.Conditions?.[name]) === true;

  const functions: Record<string, (argument: any) => unknown> = {
    Ref: ref,
    Condition: holds,
    'Fn::GetAtt': attribute,
    'Fn::If': ([condition, yes, no]) => value(holds(condition) ? yes : no),
    'Fn::Equals': ([one, other]) => isDeepStrictEqual(value(one), value(other)),
    'Fn::Not': ([condition]) => !value(condition),
    'Fn::And': (conditions) => conditions.every((condition: unknown) => value(condition)),
    'Fn::Or': (conditions) => conditions.some((condition: unknown) => value(condition)),
    'Fn::Join': ([separator, list]) => (value(list) as unknown[]).join(separator),
    'Fn::Split': ([separator, text]) => String(value(text)).split(separator),
    // Parts of ARNs, and zones, are known at deployment.
    'Fn::GetAZs': () => [],
    'Fn::Select': ([place, list]) => {
      const items = value(list) as string[];
      return items[place] ?? `<${items.join('').replace(/[<>]/g, '')}.${place}>`;
    },
    'Fn::FindInMap': ([map, top, second]) => value(template.Mappings?.[map]?.[String(value(top))]?.[String(value(second))]),
    'Fn::Sub': (argument) => {
      const [text, more] = typeof argument === 'string' ? [argument, {}] : argument;
      return text.replaceAll(/\$\{([^}!]+)\}/g, (_: string, name: string) =>
        name in more ? value(more[name]) : name.includes('.') ? attribute(name) : ref(name),
      );
    },
  };

  // Scalars become texts, since parameters are texts.
  function value(node: any): unknown {
    if (Array.isArray(node)) return node.map(value).filter((item) => item !== NO_VALUE);
    if (typeof node !== 'object' || node === null) return typeof node === 'boolean' || node === undefined ? node : String(node);
    const [[name, argument] = ['', undefined], ...more] = Object.entries(node);
    if (more.length === 0 && name in functions) return functions[name]!(argument);
    const members = Object.entries(node).map(([key, member]) => [key, value(member)] as const);
    return Object.fromEntries(members.filter(([, member]) => member !== NO_VALUE));
  }

  const there = <T extends { readonly Condition?: string }>(items: Record<string, T> | undefined) =>
    Object.entries(items ?? {}).filter(([, item]) => item.Condition === undefined || holds(item.Condition));
  return {
    resources: Object.fromEntries(
      there(template.Resources).map(([id, { Type, DeletionPolicy = 'Delete', UpdateReplacePolicy = 'Delete', Properties }]) => [
        named(id),
        {
          type: Type,
          policies: { deletion: DeletionPolicy, updateReplace: UpdateReplacePolicy },
          properties: value(Properties ?? {}) as Record<string, unknown>,
        },
      ]),
    ),
    outputs: Object.fromEntries(
      there(template.Outputs).map(([name, { Value, Export }]) => [name, { value: value(Value), exportName: value(Export?.Name) }]),
    ),
  };
}
