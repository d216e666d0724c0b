/**
 * The Terraform module makes the same resources as `template.yaml`. Terraform itself is not there:
 * `tests/terraform` evaluates the module.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CASES } from './cases.ts';
import { resolved } from './resolved.ts';
import { shape } from './shape.ts';
import { asCloudFormation, evaluated, variables } from './terraform.ts';
import { samTemplate, TARGET } from './world.ts';

const cases = Object.entries(CASES);
const same = evaluated(cases.map(([, [parameters]]) => variables(parameters, samTemplate())));

test("the module's resources, arguments and blocks are those of the provider's schema", () => {
  assert.deepEqual(same.problems, []);
});

for (const [index, [name, [parameters]]] of cases.entries()) {
  test(`the Terraform module is the template ${name}`, () => {
    const names = { FunctionMessages: 'Messages' };
    const template = resolved(samTemplate(), { stackName: 'requeue', parameters: { TargetUrl: TARGET, ...parameters }, names });
    assert.deepEqual(shape(asCloudFormation(same.cases[index]!)), shape(template));
  });
}
