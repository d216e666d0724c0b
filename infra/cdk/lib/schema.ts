/**
 * Checks a value against a JSON Schema: the keywords that `infra/policy.schema.json` uses, and no others.
 */

export interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minProperties?: number;
  readonly maxProperties?: number;
}

/** One sentence for each problem: the path of the value, and what is allowed. */
export function problemsOf(value: unknown, schema: Schema, path: string, defs: Readonly<Record<string, Schema>>): string[] {
  if (schema.$ref !== undefined) {
    return problemsOf(value, defs[schema.$ref.replace('#/$defs/', '')]!, path, defs);
  }
  const is = (allowed: string) => [`${path} is ${JSON.stringify(value)}: allowed is ${allowed}`];
  if (schema.anyOf) {
    const tried = schema.anyOf.map((branch) => ({ branch, found: problemsOf(value, branch, path, defs) }));
    // Where the value has the form of one branch, that one knows best what is wrong.
    const meant = tried.find(({ found }) => found.length === 0) ?? tried.find(({ branch }) => branch.type === typeOf(value, branch));
    return meant?.found ?? is(schema.anyOf.map(allowed).join(', or '));
  }
  if (schema.enum && !schema.enum.includes(value)) return is(allowed(schema));
  if (schema.type !== undefined && schema.type !== typeOf(value, schema)) return is(allowed(schema));
  const [size, least, most, unit] = sizeOf(value, schema);
  if (size < (least ?? -Infinity) || size > (most ?? Infinity)) {
    return is(`${unit} from ${least ?? 0} to ${most ?? 'any number'}`);
  }
  if (Array.isArray(value)) return value.flatMap((item, index) => problemsOf(item, schema.items ?? {}, `${path}[${index}]`, defs));
  return typeOf(value, schema) === 'object' ? members(value as Record<string, unknown>, schema, path, defs) : [];
}

function members(value: Record<string, unknown>, schema: Schema, path: string, defs: Readonly<Record<string, Schema>>): string[] {
  const known = schema.properties ?? {};
  const missing = (schema.required ?? []).filter((key) => value[key] === undefined).map((key) => `${path} has no ${key}, which it needs`);
  const found = Object.entries(value).flatMap(([key, member]) => {
    const of = Object.hasOwn(known, key) ? known[key]! : schema.additionalProperties ?? true;
    if (of === false) return [`${path}.${key} is unknown: there are ${Object.keys(known).join(', ')}`];
    // What is undefined is not in the JSON.
    return of === true || member === undefined ? [] : problemsOf(member, of, `${path}.${key}`, defs);
  });
  return [...missing, ...found];
}

/** JSON Schema's name for the type; that of the schema where a number serves as integer. */
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
