/**
 * Checks a value against a JSON Schema. It knows only the keywords of `infra/policy.schema.json`.
 */

export interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly propertyNames?: Schema;
  readonly required?: readonly string[];
  readonly dependentRequired?: Readonly<Record<string, readonly string[]>>;
  readonly items?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minProperties?: number;
  readonly maxProperties?: number;
}

/** The problems, one sentence for each: the path, the value and the rule. */
export function problemsOf(value: unknown, schema: Schema, path: string, defs: Readonly<Record<string, Schema>>): string[] {
  if (schema.$ref !== undefined) {
    return problemsOf(value, defs[schema.$ref.replace('#/$defs/', '')]!, path, defs);
  }
  const is = (allowed: string) => [`${path} is ${JSON.stringify(value)}: must be ${allowed}`];
  if (schema.anyOf) {
    const tried = schema.anyOf.map((branch) => ({ branch, found: problemsOf(value, branch, path, defs) }));
    // If the value has the type of one branch, that branch names the problem best.
    const meant = tried.find(({ found }) => found.length === 0) ?? tried.find(({ branch }) => branch.type === typeOf(value, branch));
    return meant?.found ?? is(schema.anyOf.map(allowed).join(', or '));
  }
  if (schema.enum && !schema.enum.includes(value)) return is(allowed(schema));
  if (schema.type !== undefined && schema.type !== typeOf(value, schema)) return is(allowed(schema));
  if (schema.pattern !== undefined && !new RegExp(schema.pattern, 'u').test(String(value))) return is(`a text of the form ${schema.pattern}`);
  const [size, least, most, unit] = sizeOf(value, schema);
  if (size < (least ?? -Infinity) || size > (most ?? Infinity)) {
    return is(`${unit} from ${least ?? 0} to ${most ?? 'any number'}`);
  }
  if (Array.isArray(value)) return value.flatMap((item, index) => problemsOf(item, schema.items ?? {}, `${path}[${index}]`, defs));
  return typeOf(value, schema) === 'object' ? members(value as Record<string, unknown>, schema, path, defs) : [];
}

function members(value: Record<string, unknown>, schema: Schema, path: string, defs: Readonly<Record<string, Schema>>): string[] {
  const known = schema.properties ?? {};
  const dependent = Object.entries(schema.dependentRequired ?? {}).flatMap(([key, others]) => (value[key] === undefined ? [] : others));
  const required = [...(schema.required ?? []), ...dependent];
  const missing = required.filter((key) => value[key] === undefined).map((key) => `${path} has no ${key}, and it is required`);
  const names = Object.keys(value).flatMap((key) => problemsOf(key, schema.propertyNames ?? {}, `${path}, a name,`, defs));
  const found = Object.entries(value).flatMap(([key, member]) => {
    const of = Object.hasOwn(known, key) ? known[key]! : schema.additionalProperties ?? true;
    if (of === false) return [`${path}.${key} is unknown: known are ${Object.keys(known).join(', ')}`];
    // JSON leaves out undefined values.
    return of === true || member === undefined ? [] : problemsOf(member, of, `${path}.${key}`, defs);
  });
  return [...missing, ...names, ...found];
}

/** The type of a value in JSON Schema. A whole number is an integer if the schema says so. */
function typeOf(value: unknown, schema: Schema): string {
  if (schema.type === 'integer' && Number.isInteger(value)) return 'integer';
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function sizeOf(value: unknown, schema: Schema): [number, number | undefined, number | undefined, string] {
  if (typeof value === 'string') return [[...value].length, schema.minLength, schema.maxLength, 'a text with a length'];
  if (typeof value === 'number') return [value, schema.minimum, schema.maximum, 'a number'];
  if (Array.isArray(value)) return [value.length, schema.minItems, schema.maxItems, 'a list with a number of items'];
  return [Object.keys(value ?? {}).length, schema.minProperties, schema.maxProperties, 'an object with a number of keys'];
}

function allowed(schema: Schema): string {
  return schema.enum?.map((value) => JSON.stringify(value)).join(', ') ?? schema.anyOf?.map(allowed).join(', or ') ?? `of the type ${schema.type}`;
}
