/**
 * `infra/deployment.json`: the settings and alarms that template, construct and Terraform module have in common.
 */

import { shared } from './shared.ts';

/** A setting, under its name in the template. */
export interface Parameter {
  readonly type: 'text' | 'integer' | 'number' | 'bool' | 'list';
  readonly default?: unknown;
  readonly values?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maximumLength?: number;
  readonly pattern?: string;
  readonly form?: string;
  /** The option of the construct, if the rule does not give its name. */
  readonly cdk?: string | null;
}

/** A metric, or an expression about the metrics before it. The values of dimensions are names as in `Fn::Sub`. */
export interface Query {
  readonly id: string;
  readonly expression?: string;
  readonly namespace: string;
  readonly name: string;
  readonly dimensions: Readonly<Record<string, string>>;
  readonly statistic: string;
}

/** An alarm on the last of its metrics. */
export interface Alarm {
  readonly description: string;
  /** The section of the runbook, if the alarm's id does not name it. */
  readonly section?: string;
  readonly metrics: readonly Query[];
  readonly period: number;
  readonly periods: number;
  /** A number, or the name of one. */
  readonly threshold: number | string;
}

interface Table {
  readonly parameters: Readonly<Record<string, Readonly<Record<string, Parameter>>>>;
  readonly presets: Readonly<Record<'standard' | 'high-volume' | 'critical', { readonly maxRetries: number; readonly totalTimeoutSeconds: readonly number[] }>>;
  readonly runbook: string;
  readonly alarms: Readonly<Record<string, Alarm>>;
  readonly newVersionErrors: Alarm;
}

export const TABLE = JSON.parse(shared('deployment.json')) as Table;

/** The settings by the names of their options. */
export const PARAMETERS: Readonly<Record<string, Parameter>> = Object.fromEntries(
  Object.values(TABLE.parameters).flatMap((group) =>
    Object.entries(group).flatMap(([name, parameter]) => {
      const { cdk = name.replace(/^./, (letter) => letter.toLowerCase()) } = parameter;
      return cdk === null ? [] : [[cdk, parameter]];
    }),
  ),
);

/** The default of an option. */
export function standard<T extends number | string>(option: string): T {
  return PARAMETERS[option]!.default as T;
}
