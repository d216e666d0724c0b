/** The types of the policy match its schema, and so do the problems that the construct finds. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type * as types from '../lib/index.ts';
import { longestAge, mostRetries, policyProblems } from '../lib/policy.ts';
import { TABLE } from '../lib/table.ts';
import { shared } from '../lib/shared.ts';
import { ROOT } from './world.ts';

const SCHEMA = JSON.parse(shared('policy.schema.json'));

/** All keys of a type, and no others: a missing or unknown key does not compile. */
type Keys<T> = Record<keyof Required<T>, true>;
/** All words of a type. */
type Words<T extends string> = Record<T, true>;

const JITTER: Words<types.JitterWord> = { full: true, equal: true, decorrelated: true, none: true };
const BACKOFF: Words<types.BackoffWord> = { exponential: true, linear: true, fibonacci: true, constant: true };
const PRESET: Words<types.Preset> = { standard: true, 'high-volume': true, critical: true };
const STATUS: Words<types.StatusWord> = { '2xx': true, '3xx': true, '4xx': true, '5xx': true };
const CLASS: Words<types.FailureClass> = {
  'rate-limit': true,
  quota: true,
  temporary: true,
  'non-retryable': true,
  RATE_LIMIT: true,
  RATE_LIMIT_EXCEEDED: true,
  QUOTA: true,
  QUOTA_EXCEEDED: true,
  TEMPORARY: true,
  TEMPORARY_ERROR: true,
  NON_RETRYABLE: true,
};
const POLICY: Keys<types.RetryPolicy> = {
  $schema: true,
  preset: true,
  maxRetries: true,
  backoff: true,
  baseDelayMultiplier: true,
  maxDelaySeconds: true,
  jitter: true,
  jitterPercentage: true,
  totalTimeoutSeconds: true,
  maxRetryAfterSeconds: true,
  messageTtlSeconds: true,
  maxDeferrals: true,
  maxDeferralSeconds: true,
  maxPostponements: true,
  maxPauseSeconds: true,
  circuitBreaker: true,
  rateLimit: true,
  limits: true,
  idempotency: true,
  errorConfigs: true,
  rules: true,
  sqsCalls: true,
  receiveCalls: true,
  queueConfig: true,
  queues: true,
};
const { $schema: _schema, sqsCalls: _sqs, receiveCalls: _receive, queues: _queues, ...SHARED } = POLICY;
const QUEUE: Keys<types.QueuePolicy> = { ...SHARED, timeoutSeconds: true, concurrency: true, deadLetter: true };
const ERROR_CONFIGS: Keys<types.ErrorConfigs> = {
  'rate-limit': true,
  quota: true,
  temporary: true,
  default: true,
  RATE_LIMIT: true,
  RATE_LIMIT_EXCEEDED: true,
  QUOTA: true,
  QUOTA_EXCEEDED: true,
  TEMPORARY: true,
  TEMPORARY_ERROR: true,
  DEFAULT: true,
};
const CLASS_POLICY: Keys<types.ClassPolicy> = {
  backoff: true,
  baseDelay: true,
  multiplier: true,
  maxDelay: true,
  jitter: true,
  maxRetries: true,
  totalTimeoutSeconds: true,
};
const BREAKER: Keys<types.CircuitBreaker> = { threshold: true, resetTimeoutSeconds: true };
const RATE_LIMIT: Keys<types.RateLimit> = {
  limit: true,
  periodSeconds: true,
  burst: true,
  maxReservationSeconds: true,
  adaptive: true,
  headers: true,
  key: true,
  per: true,
  units: true,
  fairBy: true,
  weights: true,
};
const PER: Words<types.LimitPer> = { call: true, message: true };
const IDEMPOTENCY: Keys<types.Idempotency> = { key: true, keepSeconds: true, whenUnavailable: true };
const WHEN_UNAVAILABLE: Words<types.WhenUnavailable> = { call: true, defer: true };
const RULE: Keys<types.Rule> = { match: true, class: true, delaySeconds: true, reason: true };
const MATCH: Keys<types.RuleMatch> = { status: true, code: true, header: true, words: true };
const CALLS: Keys<types.Calls> = { maxAttempts: true, baseDelay: true, multiplier: true, maxDelay: true, jitter: true };

const QUEUE_CONFIG: Keys<types.QueueConfig> = {
  visibilityTimeout: true,
  messageRetentionPeriod: true,
  maxReceiveCount: true,
  delaySeconds: true,
  receiveMessageWaitTimeSeconds: true,
};

/** The objects of the schema by their paths, and its lists of words. */
function found(schema: any, path = '', into: Map<string, string[]> = new Map()): Map<string, string[]> {
  if (schema.properties) into.set(path, Object.keys(schema.properties));
  const words = (schema.enum ?? []).filter((word: unknown) => typeof word === 'string');
  if (words.length > 0) into.set(`${path} words`, words);
  for (const [key, member] of Object.entries<any>(schema.properties ?? {})) {
    found(member.$ref ? SCHEMA.$defs.class : member, key, into);
  }
  if (schema.additionalProperties?.$ref) into.set('queue', Object.keys(SCHEMA.$defs.queue.properties));
  for (const branch of [...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])]) found(branch, path, into);
  return into;
}

test('the types have the keys and words of the schema', () => {
  const off = { off: true };
  const expected: Record<string, object> = {
    '': POLICY,
    errorConfigs: ERROR_CONFIGS,
    circuitBreaker: BREAKER,
    rateLimit: RATE_LIMIT,
    limits: RATE_LIMIT,
    'per words': PER,
    idempotency: IDEMPOTENCY,
    'whenUnavailable words': WHEN_UNAVAILABLE,
    rules: RULE,
    match: MATCH,
    sqsCalls: CALLS,
    receiveCalls: CALLS,
    queueConfig: QUEUE_CONFIG,
    queue: QUEUE,
    ...Object.fromEntries(Object.keys(ERROR_CONFIGS).map((name) => [name, CLASS_POLICY])),
    jitter: { proportional: true },
    'jitter words': JITTER,
    'backoff words': BACKOFF,
    'preset words': PRESET,
    'class words': CLASS,
    'status words': STATUS,
    'circuitBreaker words': off,
    'maxPauseSeconds words': off,
    'sqsCalls words': off,
  };
  const names = (record: Record<string, string[]>) => Object.fromEntries(Object.entries(record).map(([path, keys]) => [path, [...keys].sort()]));
  const typed = Object.fromEntries(Object.entries(expected).map(([path, keys]) => [path, Object.keys(keys)]));
  assert.deepEqual(names(Object.fromEntries(found(SCHEMA))), names(typed));
});

test('every keyword of the schema is checked', () => {
  const annotations = ['description', 'title', '$schema'];
  const checked = [
    ...['$ref', '$defs', 'type', 'enum', 'anyOf', 'properties', 'additionalProperties', 'propertyNames', 'required', 'dependentRequired', 'items'],
    ...['minimum', 'maximum', 'pattern', 'minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'],
  ];
  const keywords = (schema: any): string[] =>
    Object.entries<any>(schema).flatMap(([keyword, value]) => {
      // Its members are names of keys.
      if (keyword === 'dependentRequired') return [keyword];
      const inner =
        keyword === 'properties' || keyword === '$defs' ? Object.values<any>(value) : keyword === 'anyOf' ? value : [value].filter((one) => one?.constructor === Object);
      return [keyword, ...inner.flatMap(keywords)];
    });
  assert.deepEqual([...new Set(keywords(SCHEMA))].sort(), [...checked, ...annotations].sort());
});

test('ages and retries of the presets are those of the function', () => {
  const source = readFileSync(join(ROOT, 'src/policy/presets.rs'), 'utf8');
  const units: Record<string, number> = { MINUTE: 60, HOUR: 3600 };
  const presets = source.matchAll(/name: "([a-z-]+)",.*?rate_limit: (Row \{.*?\}),\s*quota: (Row \{.*?\}),\s*temporary: (Row \{.*?\}),/gs);
  const ages = [...presets].map(([, name, ...rows]) => [
    name,
    rows.map((row) => {
      const [, count, unit] = /age: (?:(\d+) \* )?(HOUR|MINUTE) /.exec(row)!;
      return Number(count ?? 1) * units[unit!]!;
    }),
  ]);
  const retries = Object.fromEntries([...source.matchAll(/name: "([a-z-]+)",.*?max_retries: (\d+),/gs)].map(([, name, count]) => [name, Number(count)]));
  assert.deepEqual(Object.fromEntries(ages.map(([name, found]) => [name, { maxRetries: retries[name as string], totalTimeoutSeconds: found }])), TABLE.presets);
});

test('the longest age is that of the class with the longest timeout', () => {
  const table: [types.RetryPolicy, number][] = [
    [{}, 172_800],
    [{ preset: 'high-volume' }, 3600],
    [{ preset: 'critical' }, 600],
    [{ totalTimeoutSeconds: 60 }, 60],
    [{ totalTimeoutSeconds: 60, errorConfigs: { QUOTA: { totalTimeoutSeconds: 90 } } }, 90],
    [{ errorConfigs: { QUOTA_EXCEEDED: { totalTimeoutSeconds: 90 } } }, 43_200],
    [{ totalTimeoutSeconds: 60, errorConfigs: { quota: { totalTimeoutSeconds: 90 } } }, 90],
    [{ preset: 'critical', errorConfigs: { default: { totalTimeoutSeconds: 90 } } }, 90],
    [JSON.parse('{"totalTimeoutSeconds": "1h30m"}'), 5_400],
    // DEFAULT adds nothing to a class with an entry of its own.
    [{ preset: 'critical', errorConfigs: { DEFAULT: { totalTimeoutSeconds: 90 } } }, 90],
    [{ preset: 'critical', errorConfigs: { DEFAULT: { totalTimeoutSeconds: 90 }, QUOTA: { maxRetries: 2 } } }, 600],
  ];
  for (const [policy, age] of table) assert.equal(longestAge(policy), age, JSON.stringify(policy));
});

test('the most retries are those of the class with the most, within those of the policy', () => {
  const table: [types.RetryPolicy, number][] = [
    [{}, 50],
    [{ preset: 'critical' }, 5],
    [{ maxRetries: 7 }, 7],
    [{ errorConfigs: { QUOTA: { maxRetries: 60 } } }, 50],
    [{ errorConfigs: { QUOTA: { maxRetries: 3 } } }, 50],
    [{ errorConfigs: { DEFAULT: { maxRetries: 3 }, QUOTA_EXCEEDED: { maxRetries: 4 } } }, 4],
  ];
  for (const [policy, retries] of table) assert.equal(mostRetries(policy), retries, JSON.stringify(policy));
});

test('the policies of the documents are without problems', () => {
  const pages = ['retry-policy', 'classification'].map((name) => readFileSync(join(ROOT, `docs/concepts/${name}.md`), 'utf8'));
  const blocks = pages.join('\n').matchAll(/```json\n(\{.*?\})\n```/gs);
  const policies = [...blocks].map(([, text]) => JSON.parse(text!)).filter((policy) => 'errorConfigs' in policy || 'rules' in policy);
  assert.ok(policies.length >= 2);
  for (const policy of policies) assert.deepEqual(policyProblems(policy), []);
});

test('a policy is refused if the schema does not allow it', () => {
  const table: [unknown, RegExp][] = [
    [{ maxRetrys: 3 }, /^policy\.maxRetrys is unknown: known are .*maxRetries/],
    [{ maxRetries: -1 }, /^policy\.maxRetries is -1: must be a number from 0 to 10000$/],
    [{ maxRetries: 1.5 }, /^policy\.maxRetries is 1\.5: must be of the type integer$/],
    [{ maxRetries: '3' }, /^policy\.maxRetries is "3": must be of the type integer$/],
    [{ preset: 'critcal' }, /^policy\.preset is "critcal": must be "standard", "high-volume", "critical"$/],
    [{ jitter: { proportional: 2 } }, /^policy\.jitter\.proportional is 2: must be a number from 0 to 1$/],
    [{ jitter: {} }, /^policy\.jitter has no proportional, and it is required$/],
    [{ jitter: 'ful' }, /^policy\.jitter is "ful": must be "full", "equal", /],
    [{ backoff: [] }, /^policy\.backoff is \[\]: must be a list with a number of items from 1 to 100$/],
    [{ backoff: [1, 0] }, /^policy\.backoff\[1\] is 0: must be a number from 0\.001 to 86400$/],
    [{ circuitBreaker: 'on' }, /^policy\.circuitBreaker is "on": must be "off", or of the type object$/],
    [{ rateLimit: { limit: 5, weights: { acme: 3 } } }, /^policy\.rateLimit has no fairBy, and it is required$/],
    [{ rateLimit: { limit: 5, fairBy: '/t', weights: { acme: 0 } } }, /^policy\.rateLimit\.weights\.acme is 0: must be a number from 1 to 255$/],
    [{ rateLimit: { limit: 5, fairBy: 'a b' } }, /^policy\.rateLimit\.fairBy is "a b": must be a text of the form /],
    [{ errorConfigs: { QOUTA: {} } }, /^policy\.errorConfigs\.QOUTA is unknown: known are QUOTA, |^policy\.errorConfigs\.QOUTA is unknown/],
    [{ errorConfigs: { QUOTA: { totalTimeoutSeconds: 0 } } }, /^policy\.errorConfigs\.QUOTA\.totalTimeoutSeconds is 0: /],
    [{ rules: [{ class: 'QUOTA' }] }, /^policy\.rules\[0\] has no match, and it is required$/],
    [{ rules: [{ match: {}, class: 'QUOTA' }] }, /^policy\.rules\[0\]\.match is \{\}: must be an object with a number of keys from 1/],
    [{ rules: [{ match: { code: '' }, class: 'QUOTA' }] }, /^policy\.rules\[0\]\.match\.code is "": must be a text with a length from 1 to 256$/],
    [{ rules: [{ match: { header: { a: false } }, class: 'QUOTA' }] }, /^policy\.rules\[0\]\.match\.header\.a is false: /],
    [[], /^policy is \[\]: must be of the type object$/],
    [null, /^policy is null: /],
  ];
  for (const [policy, problem] of table) {
    const problems = policyProblems(policy);
    assert.equal(problems.length, 1, JSON.stringify(policy));
    assert.match(problems[0]!, problem);
  }
});

test('an independent validator accepts the same policies', () => {
  const accepts = new Ajv2020().compile(SCHEMA);
  const values = [-1, 0, 0.5, 1, 1.5, 30, 1e9, '', 'off', 'full', 'x'.repeat(300), true, null, [], [1, 0], [1], {}, { proportional: 0.5 }];
  const keys = (of: object) => Object.keys(of).flatMap((key) => values.map((value) => ({ [key]: value })));
  const within = [
    ...keys(CLASS_POLICY).map((errorConfig) => ({ errorConfigs: { QUOTA: errorConfig } })),
    ...keys(BREAKER).map((circuitBreaker) => ({ circuitBreaker })),
    ...keys(RATE_LIMIT).map((rateLimit) => ({ rateLimit: { limit: 1, ...rateLimit } })),
    ...keys(RATE_LIMIT).map((limit) => ({ limits: [{ limit: 1 }, { limit: 1, key: 'tenant', ...limit }] })),
    ...keys(CALLS).flatMap((calls) => [{ sqsCalls: calls }, { receiveCalls: calls }]),
    ...keys(QUEUE_CONFIG).map((queueConfig) => ({ queueConfig })),
    ...keys(RULE).map((rule) => ({ rules: [{ match: { status: 429 }, class: 'QUOTA', ...rule }] })),
    ...keys(MATCH).map((match) => ({ rules: [{ match, class: 'QUOTA' }] })),
  ];
  const policies = [...values, ...keys({ ...POLICY, unknown: true }), ...within];
  const accepted = policies.filter((policy) => {
    const isValid = accepts(policy);
    assert.equal(policyProblems(policy).length === 0, isValid, JSON.stringify(policy));
    return isValid;
  });
  assert.ok(accepted.length > 50 && accepted.length < policies.length / 2, `${accepted.length} of ${policies.length}`);
});
