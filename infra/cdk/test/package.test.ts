/** The package that npm makes works in applications of both module systems. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ARM, build, HERE, made, scratch, TARGET } from './world.ts';

const OPTIONS = {
  sharedTable: 'dynamodb',
  deadLetterMode: 'direct',
  maximumPollers: 20,
  reserveConcurrency: true,
  mappingMetrics: true,
  enforceTls: true,
  alarmEmail: 'ops@example.com',
} as const;

test('the packed construct makes the same resources as the source, imported and required, with the newest and the oldest CDK', () => {
  const there = scratch();
  const run = (command: string, ...rest: string[]) => execFileSync(command, rest, { cwd: there, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const modules = join(there, 'node_modules');
  mkdirSync(join(modules, 'requeue-cdk'), { recursive: true });
  run('npm', 'pack', '--silent', '--pack-destination', there, HERE);
  rmSync(join(HERE, 'dist'), { recursive: true });
  const packed = readdirSync(there).filter((name) => name.endsWith('.tgz'));
  assert.equal(packed.length, 1);
  run('tar', '--extract', '--strip-components', '1', '--directory', join(modules, 'requeue-cdk'), '--file', packed[0]!);
  const link = (name: string, from = name) => symlinkSync(join(HERE, 'node_modules', from), join(modules, name));
  for (const name of ['aws-cdk-lib', 'constructs', 'typescript', '@types']) link(name);

  const application = (imports: string) => `${imports}
    const app = new App();
    const stack = new Stack(app, 'requeue');
    const code = lambda.Code.fromAsset(${JSON.stringify(build(join(there, 'code'), ARM))});
    new RetryQueue(stack, 'Orders', { targetUrl: '${TARGET}', code, ...${JSON.stringify(OPTIONS)} });
    const { template } = app.synth().getStackByName('requeue');
    process.stdout.write(JSON.stringify(template.Resources));`;
  const sources = {
    'app.mts': `import { App, Stack } from 'aws-cdk-lib';
      import * as lambda from 'aws-cdk-lib/aws-lambda';
      import { RetryQueue } from 'requeue-cdk';`,
    'app.cjs': `const { App, Stack, aws_lambda: lambda } = require('aws-cdk-lib');
      const { RetryQueue } = require('requeue-cdk');`,
  };
  const { template } = made(OPTIONS);
  const { Resources: expected } = template().toJSON();
  const compare = () => {
    for (const [name, imports] of Object.entries(sources)) {
      writeFileSync(join(there, name), application(imports));
      // As in jest, which requires no ES modules.
      assert.deepEqual(withoutAsset(JSON.parse(run(process.execPath, '--no-experimental-require-module', name))), withoutAsset(expected), name);
    }
  };
  compare();
  rmSync(join(modules, 'aws-cdk-lib'));
  link('aws-cdk-lib', 'aws-cdk-lib-floor');
  compare();
  const { devDependencies, peerDependencies } = JSON.parse(readFileSync(join(HERE, 'package.json'), 'utf8'));
  assert.equal(devDependencies['aws-cdk-lib-floor'], `npm:aws-cdk-lib@${peerDependencies['aws-cdk-lib'].slice(1)}`);
  // The examples of the README compile with the package's types.
  const examples = [...readFileSync(join(HERE, 'README.md'), 'utf8').matchAll(/```ts\n(.*?)```/gs)];
  assert.equal(examples.length, 4);
  examples.forEach(([, text], place) => writeFileSync(join(there, `readme-${place}.mts`), text!));
  writeFileSync(join(there, 'tsconfig.json'), JSON.stringify({ compilerOptions: { module: 'nodenext', strict: true, noEmit: true, types: ['node'] } }));
  run(join(HERE, 'node_modules/.bin/tsc'), '--project', there);
});

test('the lock file names no host', () => {
  assert.doesNotMatch(readFileSync(join(HERE, 'package-lock.json'), 'utf8'), /"resolved"/);
});

function withoutAsset(resources: Record<string, any>): unknown {
  // Old versions leave out this default of CloudFormation.
  const told = (_: string, value: any) => (value?.ReturnData === true ? { ...value, ReturnData: undefined } : value);
  return Object.fromEntries(
    Object.entries(JSON.parse(JSON.stringify(resources, told)) as Record<string, any>)
      .filter(([, { Type }]) => Type !== 'AWS::CDK::Metadata')
      .map(([id, { Type, Properties: { Code: _code, ...properties } = {} }]) => [id, { Type, properties }]),
  );
}
