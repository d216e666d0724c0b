/** The CDK's command line synthesises the example application, without the network. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { resolved, type Template } from './resolved.ts';
import { ARM, build, HERE, lint, samTemplate, scratch, TARGET } from './world.ts';

const CDK = join(HERE, 'node_modules/.bin/cdk');

function synth(out: string, context: Record<string, string>) {
  const given = Object.entries(context).flatMap(([name, value]) => ['--context', `${name}=${value}`]);
  const env = { ...process.env, CDK_DISABLE_CLI_TELEMETRY: 'true', CDK_VALIDATION: 'true', HOME: out };
  return spawnSync(CDK, ['synth', '--quiet', '--no-notices', '--no-version-reporting', '--output', join(out, 'cdk.out'), ...given], {
    cwd: HERE,
    env,
    encoding: 'utf8',
  });
}

test('the application synthesises, lints clean and has the outputs of the template', () => {
  const out = scratch();
  const { status, stderr } = synth(out, { targetUrl: TARGET, alarmEmail: 'ops@example.com', code: build(join(out, 'code'), ARM) });
  assert.equal(status, 0, stderr);
  const path = join(out, 'cdk.out/Requeue.template.json');
  assert.equal(lint(path), '');
  assert.deepEqual(JSON.parse(readFileSync(join(out, 'cdk.out/validation-report.json'), 'utf8')).pluginReports, []);

  const application = JSON.parse(readFileSync(path, 'utf8')) as Template;
  // For example, OrdersQueueC538DD4C is Queue.
  const names = Object.fromEntries(Object.keys(application.Resources).map((id) => [id, id.replace(/^Orders(.*)[0-9A-F]{8}$/, '$1')]));
  const { outputs } = resolved(application, { stackName: 'Requeue', names });
  const template = resolved(samTemplate(), { stackName: 'Requeue', parameters: { TargetUrl: TARGET, AlarmEmail: 'ops@example.com' }, names: {} });
  assert.deepEqual(outputs, template.outputs);
});

test('the application asks for the URL', () => {
  const { status, stderr } = synth(scratch(), {});
  assert.notEqual(status, 0);
  assert.match(stderr, /targetUrl is missing: .* cdk deploy -c targetUrl=https:/);
});
