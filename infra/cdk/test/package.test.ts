/** The package that npm makes works in applications of both module systems. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ARM, build, HERE, made, scratch, TARGET } from './world.ts';

test('the packed construct makes the same resources as the source, imported and required', () => {
  const there = scratch();
  const run = (command: string, ...rest: string[]) => execFileSync(command, rest, { cwd: there, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const modules = join(there, 'node_modules');
  mkdirSync(join(modules, 'requeue-cdk'), { recursive: true });
  run('npm', 'pack', '--silent', '--pack-destination', there, HERE);
  rmSync(join(HERE, 'dist'), { recursive: true });
  const packed = readdirSync(there).filter((name) => name.endsWith('.tgz'));
  assert.equal(packed.length, 1);
  run('tar', '--extract', '--strip-components', '1', '--directory', join(modules, 'requeue-cdk'), '--file', packed[0]!);
  for (const name of ['aws-cdk-lib', 'constructs', 'typescript', '@types']) symlinkSync(join(HERE, 'node_modules', name), join(modules, name));

  const application = (imports: string) => `${imports}
    const app = new App();
    const stack = new Stack(app, 'requeue');
    const code = lambda.Code.fromAsset(${JSON.stringify(build(join(there, 'code'), ARM))});
    new RetryQueue(stack, 'Orders', { targetUrl: '${TARGET}', code });
    const { template } = app.synth().getStackByName('requeue');
    process.stdout.write(JSON.stringify(template.Resources));`;
  const sources = {
    'app.mts': `import { App, Stack } from 'aws-cdk-lib';
      import * as lambda from 'aws-cdk-lib/aws-lambda';
      import { RetryQueue } from 'requeue-cdk';`,
    'app.cjs': `const { App, Stack, aws_lambda: lambda } = require('aws-cdk-lib');
      const { RetryQueue } = require('requeue-cdk');`,
  };
  const { template } = made();
  const { Resources: expected } = template().toJSON();
  for (const [name, imports] of Object.entries(sources)) {
    writeFileSync(join(there, name), application(imports));
    assert.deepEqual(withoutAsset(JSON.parse(run(process.execPath, name))), withoutAsset(expected), name);
  }
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
  return Object.fromEntries(
    Object.entries(resources)
      .filter(([, { Type }]) => Type !== 'AWS::CDK::Metadata')
      .map(([id, { Type, Properties: { Code: _code, ...properties } }]) => [id, { Type, properties }]),
  );
}
