/**
 * The files of `infra/` that the SAM template is made of as well. The published package has them in `dist/`, which mirrors `infra/`.
 */

import { readFileSync } from 'node:fs';

/** The text of a file of `infra/`. */
export function shared(path: string): string {
  return readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
}

/** The JSON of a file of `infra/`, with `${Name}` and `${Name.Attribute}` replaced by the values. */
export function filled(path: string, values: Readonly<Record<string, string>>): unknown {
  return JSON.parse(shared(path), (_, value) => (typeof value === 'string' ? fill(value, path, values) : value));
}

function fill(text: string, path: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\$\{([^}]+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`infra/${path} names \${${name}}, for which the construct has no value`);
    return value;
  });
}
