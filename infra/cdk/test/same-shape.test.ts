/** The construct makes the same resources as `template.yaml`. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CASES } from './cases.ts';
import { resolved } from './resolved.ts';
import { shape } from './shape.ts';
import { deployed, made, samTemplate, TARGET } from './world.ts';

for (const [name, [parameters, options]] of Object.entries(CASES)) {
  test(`the construct is the template ${name}`, () => {
    const names = { FunctionMessages: 'Messages' };
    const template = resolved(samTemplate(), { stackName: 'requeue', parameters: { TargetUrl: TARGET, ...parameters }, names });
    const construct = deployed(made((stack) => ({ name: 'requeue', ...options(stack) })));
    assert.deepEqual(shape(construct), shape(template));
  });
}

test('an option of each parameter of the template is compared', () => {
  const compared = Object.values(CASES).flatMap(([parameters]) => Object.keys(parameters));
  assert.deepEqual([...new Set(['TargetUrl', ...compared])].sort(), Object.keys(samTemplate().Parameters ?? {}).sort());
});
