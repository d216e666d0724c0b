/**
 * The files of `infra/` that construct and SAM template share. The published package has them in
 * `dist/`, which mirrors `infra/`.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { HERE } from './here.ts';

/** The text of a file of `infra/`. */
export function shared(path: string): string {
  return readFileSync(join(HERE, '../..', path), 'utf8');
}

/** The JSON of a file of `infra/`, with the values for `${Name}` and `${Name.Attribute}`. */
export function filled(path: string, values: Readonly<Record<string, string>>): unknown {
  return JSON.parse(shared(path), (_, value) => (typeof value === 'string' ? fill(value, path, values) : value));
}

/** The text of a file of `infra/`, with the values for its names. */
export function fill(text: string, path: string, values: Readonly<Record<string, string | number>>): string {
  return text.replaceAll(/\$\{([^}]+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`infra/${path} names \${${name}}, and the construct has no value for it`);
    return String(value);
  });
}
