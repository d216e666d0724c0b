/**
 * Checks of the options, one by one and together. A number or text that is known only at deployment
 * passes.
 */

import { Duration, Token } from 'aws-cdk-lib';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import * as sns from 'aws-cdk-lib/aws-sns';
import { longestAge, mostRetries, policyProblems, type RetryPolicy } from './policy.ts';
import type { RetryQueueProps } from './props.ts';
import { type Parameter, PARAMETERS, standard } from './table.ts';

/** Options that have a default. */
type Filled =
  | 'messagesPerCall' | 'messageTimeout' | 'messageConcurrency' | 'timeout' | 'memorySize' | 'batchSize' | 'maxBatchingWindow' | 'maxConcurrency' | 'maximumPollers' | 'minimumPollers'
  | 'visibilityTimeout' | 'retentionPeriod' | 'maxReceiveCount' | 'monitoring' | 'maxQueueDepth' | 'maxMessageAge' | 'runbookUrl';

/** The options with the defaults filled in. */
export type Checked = RetryQueueProps & Required<Pick<RetryQueueProps, Filled>>;

type Named<T> = { [Key in keyof Checked as Checked[Key] extends T ? Key : never]: Checked[Key] };

/** The limits of SQS, Lambda and the function. AWS recommends a `maxReceiveCount` of at least 5. */
const BOUNDS = bounded<keyof Named<number>>('messagesPerCall', 'messageConcurrency', 'memorySize', 'batchSize', 'maxConcurrency', 'maximumPollers', 'minimumPollers', 'maxReceiveCount', 'maxQueueDepth');

/** The limits of durations, in seconds. */
const SECONDS: Readonly<Record<keyof Named<Duration>, Parameter>> = {
  ...bounded('messageTimeout', 'timeout', 'maxBatchingWindow', 'retentionPeriod', 'maxMessageAge'),
  visibilityTimeout: { type: 'integer', minimum: 0, maximum: 43_200 },
};

function bounded<Name extends string>(...names: Name[]): Readonly<Record<Name, Parameter>> {
  return Object.fromEntries(names.map((name) => [name, PARAMETERS[name]!])) as Record<Name, Parameter>;
}

/** Texts that have a pattern. */
const FORMS = ['targetUrl', 'targetFunction', 'contentType', 'scope', 'signingSecret', 'clientCertificate', 'clientKey', 'alarmEmail'] as const;

/** The pattern of `targetUrl` with `allowHttp`. */
const HTTP_TOO = /^https?:\/\/[^/].*$/;

/** Options whose values no error may show. */
const HIDDEN = ['signingSecret', 'clientCertificate', 'clientKey'];

/**
 * SQS's longest delay, in seconds. Requeue looks at the age of a message on each receive, which may
 * be this long after its copy was sent.
 */
const LONGEST_DELAY = 900;

/** Options of the requests to an endpoint. */
const OF_REQUESTS = [
  'allowHttp',
  'method',
  'contentType',
  'headers',
  'attributeHeaders',
  'signingSecret',
  'clientCertificate',
  'clientKey',
] as const satisfies readonly (keyof RetryQueueProps)[];

/** Options of the function that the construct makes. A user's function has its own. */
const OF_THE_READY_LAMBDA = [
  ...OF_REQUESTS,
  'messagesPerCall',
  'secrets',
  'parameters',
  'scope',
  'code',
  'architecture',
  'memorySize',
  'timeout',
  'logRetention',
  'reserveConcurrency',
  'vpc',
  'vpcSubnets',
  'securityGroups',
  'tracing',
  'codeSigningConfig',
  'environmentKmsKey',
  'logKmsKey',
] as const satisfies readonly (keyof RetryQueueProps)[];

/** The target of the messages. */
const TARGETS = ['targetUrl', 'targetFunction', 'handler'] as const;

/** The problems with the choice between the ready Lambda and a user's function. */
export function choiceProblems(props: RetryQueueProps): string[] {
  const [target, ...others] = TARGETS.filter((name) => props[name] !== undefined);
  if (target === undefined || others.length > 0) {
    const given = target === undefined ? 'neither targetUrl nor targetFunction nor handler is given' : `${[target, ...others].join(' and ')} are given together`;
    return [`${given}: give targetUrl, the URL for each message, or targetFunction, an existing function, or handler, a function with Requeue's library`];
  }
  const refused = { targetUrl: ['messagesPerCall'], targetFunction: [...OF_REQUESTS, 'messageTimeout'], handler: OF_THE_READY_LAMBDA } as const;
  const remedies = { targetUrl: '', targetFunction: '', handler: ', and set it at the handler' };
  const both = props.maximumPollers && props.maxConcurrency !== undefined ? ['maxConcurrency and maximumPollers are given together: leave out one of them'] : [];
  return [...both, ...refused[target].filter((name) => props[name] !== undefined).map((name) => `${name} is no option for ${target}: leave it out${remedies[target]}`)];
}

/** The problems, one sentence for each: the option, its value and the remedy. */
export function problemsOf(options: Checked): string[] {
  const each = [...forms(options), ...bounds(options), ...policies(options.policy, options.sharedTable)];
  // Invalid values cannot be compared with each other.
  return each.length > 0 ? each : together(options);
}

function forms(options: Checked): string[] {
  return FORMS.flatMap((name) => {
    const { pattern, form } = PARAMETERS[name]!;
    const text = options[name];
    const allowing = name === 'targetUrl' && options.allowHttp ? HTTP_TOO : new RegExp(`^(${pattern})$`);
    if (typeof text !== 'string' || Token.isUnresolved(text) || allowing.test(text)) return [];
    return [`${name} is ${HIDDEN.includes(name) ? 'invalid' : JSON.stringify(text)}: give it ${form}${name === 'targetUrl' ? ', or with allowHttp' : ''}`];
  });
}

function bounds(options: Checked): string[] {
  const numbers = Object.entries(BOUNDS).map(([name, bound]) => [name, options[name as keyof typeof BOUNDS], bound, ''] as const);
  const durations = Object.entries(SECONDS)
    .map(([name, bound]) => [name, options[name as keyof typeof SECONDS], bound] as const)
    .filter(([, duration]) => !duration.isUnresolved())
    .map(([name, duration, bound]) => [name, seconds(duration), bound, ' s'] as const);
  const outside = [...numbers, ...durations].flatMap(([name, value, { type, minimum = 0, maximum = Infinity }, unit]) => {
    const fits = value >= minimum && value <= maximum && (type !== 'integer' || Number.isInteger(value));
    return Token.isUnresolved(value) || fits ? [] : [`${name} is ${value}${unit}: give it ${range(type, minimum, maximum)}${unit}`];
  });
  const late = Object.keys(SECONDS).filter((name) => options[name as keyof typeof SECONDS].isUnresolved());
  if (Token.isUnresolved(options.maximumPollers)) late.push('maximumPollers');
  return [...outside, ...late.map((name) => `${name} is known only at deployment, and other options depend on it: give it a value`)];
}

function range(type: string, least: number, most: number): string {
  const whole = type === 'integer' ? 'a whole number from ' : '';
  return most === Infinity ? `at least ${least}` : `${whole}${least} to ${most}`;
}

function policies(policy: RetryPolicy | string | undefined, sharedTable: unknown): string[] {
  if (policy === undefined || isUnknown(policy)) return [];
  let document: RetryPolicy;
  try {
    document = parsed(policy);
  } catch {
    return ['policy is not JSON: give it a JSON document, an object, or the ARN of a parameter or secret with the document'];
  }
  const problems = policyProblems(document);
  if (problems.length > 0 || document.idempotency === undefined || (sharedTable ?? 'none') !== 'none') return problems;
  return ['policy has idempotency, which needs a table, and sharedTable is none: give sharedTable dynamodb, or remove idempotency'];
}

/** If the document is known only at deployment, or the function reads it when it starts. */
function isUnknown(policy: RetryPolicy | string | undefined): boolean {
  return Token.isUnresolved(policy) || (typeof policy === 'string' && policy.startsWith('arn:'));
}

function together(options: Checked): string[] {
  const problems: string[] = [];
  const { name } = options;
  const letters = longestName(options.fifo);
  if (name !== undefined && !Token.isUnresolved(name) && !(/^[A-Za-z0-9_-]+$/.test(name) && name.length <= letters)) {
    problems.push(`name is ${JSON.stringify(name)}: give it 1 to ${letters} letters, digits, hyphens and underscores`);
  }
  const timeout = seconds(options.timeout);
  const window = seconds(options.maxBatchingWindow);

  const visible = seconds(options.visibilityTimeout);
  if (visible < 6 * timeout + window) {
    problems.push(
      `visibilityTimeout is ${visible} s, and AWS asks for 6 × timeout (${timeout} s) + maxBatchingWindow (${window} s), ` +
        `or SQS delivers a throttled batch twice: leave it out, or give it ${6 * timeout + window} s`,
    );
  }
  if (options.batchSize > 10 && window < 1) {
    problems.push(`batchSize is ${options.batchSize}, and more than 10 need a batching window: give maxBatchingWindow 1 s, or batchSize 10`);
  }
  const { maximumPollers, minimumPollers } = options;
  if (maximumPollers < minimumPollers && (maximumPollers > 0 || minimumPollers > standard<number>('minimumPollers'))) {
    problems.push(`maximumPollers is ${maximumPollers}, and minimumPollers is ${minimumPollers}: give maximumPollers ${minimumPollers} at least, or leave both out`);
  }
  const longestUrl = PARAMETERS['runbookUrl']!.maximumLength!;
  if (!Token.isUnresolved(options.runbookUrl) && options.runbookUrl.length > longestUrl) {
    problems.push(
      `runbookUrl has ${options.runbookUrl.length} characters, and CloudWatch would refuse an alarm whose description ends with it: ` +
        `give it at most ${longestUrl}`,
    );
  }
  if (options.fifo && window > 0) {
    problems.push(`maxBatchingWindow is ${window} s, and a FIFO queue allows none: leave it out`);
  }
  if (options.fifo && (options.deadLetterMode ?? 'annotate') === 'annotate') {
    problems.push('deadLetterMode is annotate, which writes no reason on a FIFO queue: give direct, or redrive for dead letters without reasons');
  }
  const message = seconds(options.messageTimeout);
  const longest = longestMessage(timeout);
  const needed = neededBy(options);
  if (timeout < needed) {
    problems.push(
      `timeout is ${timeout} s, and targetFunction may take ${needed - MORE_THAN_THE_TARGET} s: leave timeout out, or give it ${needed} s, ` +
        'so that the function can wait for the response and settle the messages; it has at most 900 s',
    );
  }
  if (options.targetFunction === undefined && message > longest) {
    problems.push(
      `messageTimeout is ${message} s, and timeout (${timeout} s) leaves ${longest} s for it, without the time for settling: ` +
        `give messageTimeout ${longest} s at most, or a longer timeout`,
    );
  }
  if (options.clientCertificate !== undefined && options.clientKey === undefined) {
    problems.push('clientCertificate has no private key: give clientKey, or leave it out');
  }
  if (options.clientKey !== undefined && options.clientCertificate === undefined) {
    problems.push('clientKey has no certificate: give clientCertificate, or leave it out');
  }
  for (const name of ['vpcSubnets', 'securityGroups'] as const) {
    if (options[name] !== undefined && options.vpc === undefined) {
      problems.push(`${name} belongs to a VPC, and vpc is not given: give vpc, or leave it out`);
    }
  }
  problems.push(...keys(options), ...roles(options));
  if (options.topicOperations?.length && !options.topic) {
    problems.push('topicOperations filters the messages of a topic, and topic is not given: give topic, or leave it out');
  }
  if (options.fifo && isFifo(options.topic) === false) {
    problems.push('topic is a standard topic, and SNS delivers to a FIFO queue from a FIFO topic only: give a FIFO topic, or a standard queue');
  }
  const told = (['alarmEmail', 'alarmTopic'] as const).filter((name) => options[name] !== undefined);
  if (options.monitoring === 'none' && told.length > 0) {
    problems.push(`${told.join(' and ')} cannot be notified, since monitoring is none: give monitoring alarms, or leave it out`);
  }
  if (!isUnknown(options.policy)) {
    const policy = parsed(options.policy ?? {});
    problems.push(...receives(options, mostRetries(policy)));
    const age = longestAge(policy);
    const retention = seconds(options.retentionPeriod);
    if (retention < age + LONGEST_DELAY) {
      problems.push(
        `retentionPeriod is ${retention} s, and the policy retries messages for up to ${age} s: give it the policy's longest ` +
          `totalTimeoutSeconds + ${LONGEST_DELAY} s, here ${age + LONGEST_DELAY} s, or shorten that timeout`,
      );
    }
  }
  return problems;
}

/** Unknown if the topic is imported by an ARN that is known only at deployment. */
function isFifo(topic: sns.ITopic | undefined): boolean | undefined {
  return topic instanceof sns.Topic || (topic && !Token.isUnresolved(topic.topicArn)) ? topic.fifo : undefined;
}

/** If messages wait in flight, each retry is a receive. `requeue doctor` has the same rule. */
function receives({ fifo, strategy, mode, batchSize, maxReceiveCount }: Checked, retries: number): string[] {
  if ((!fifo && strategy !== 'visibility') || mode === 'report' || Token.isUnresolved(maxReceiveCount)) return [];
  // In a batch, an earlier message of a group uses up receives of later ones.
  const needed = fifo && batchSize !== 1 ? 2 * retries : retries + 1;
  if (maxReceiveCount >= needed) return [];
  return [
    `maxReceiveCount is ${maxReceiveCount}, and with ${fifo ? 'fifo' : 'strategy visibility'} each of the policy's ${retries} retries is a receive: ` +
      `give maxReceiveCount ${needed}, or policy a lower maxRetries`,
  ];
}

/** IAM knows a key by its ARN only, and so does CloudWatch Logs. */
function keys(options: Checked): string[] {
  const all = {
    encryptionKey: [options.encryptionKey],
    otherEncryptionKeys: options.otherEncryptionKeys ?? [],
    environmentKmsKey: [options.environmentKmsKey],
    logKmsKey: [options.logKmsKey],
  };
  return Object.entries(all)
    .filter(([, given]) => given.some((key) => key !== undefined && 'aliasName' in key && !managedByAws(key)))
    .map(([name]) => `${name} is an alias, which no policy of a role can name: give the key itself, for example by kms.Key.fromLookup`);
}

/** All roles of the account may use these keys through their service, without a policy. */
function managedByAws(key: object): boolean {
  return (key as { readonly aliasName: string }).aliasName.startsWith('alias/aws/');
}

function roles(options: Checked): string[] {
  const problems: string[] = [];
  const { rolePath } = options;
  if (rolePath !== undefined && !Token.isUnresolved(rolePath) && !(/^\/([!-~]+\/)?$/.test(rolePath) && rolePath.length <= 512)) {
    problems.push(`rolePath is ${JSON.stringify(rolePath)}: begin and end it with a slash, for example /service/, at most 512 characters`);
  }
  if (options.handler && !options.deployment) {
    const given = (['permissionsBoundary', 'rolePath'] as const).filter((name) => options[name] !== undefined);
    problems.push(...given.map((name) => `${name} is for roles that the construct makes, and with handler it makes none: set it at the handler's role`));
  }
  return problems;
}

/** The length of `name`. SQS allows 80 characters, and `-dead-letters` and `.fifo` follow the name. */
export function longestName(fifo: boolean | undefined): number {
  return 80 - '-dead-letters'.length - (fifo ? '.fifo'.length : 0);
}

/** Seconds of a function's timeout for a message, without the time for settling. */
export function longestMessage(timeout: number): number {
  return timeout - Math.min(5, timeout / 4);
}

/** 5 s for an invocation's own time on the way, and 5 s for settling. */
const MORE_THAN_THE_TARGET = 10;

/** The least timeout of the function, in seconds; 0 if the target's own is unknown. */
export function neededBy({ targetFunction }: RetryQueueProps): number {
  const target = targetFunction instanceof lambda.Alias ? targetFunction.lambda : targetFunction;
  // 3 s is Lambda's default timeout.
  const known = target instanceof lambda.Function ? (target.timeout ?? Duration.seconds(3)) : undefined;
  return known === undefined ? 0 : seconds(known) + MORE_THAN_THE_TARGET;
}

function parsed(policy: RetryPolicy | string): RetryPolicy {
  return typeof policy === 'string' ? (JSON.parse(policy) as RetryPolicy) : policy;
}

/** A duration in seconds; 0 if it is known only at deployment. */
export function seconds(duration: Duration): number {
  return duration.isUnresolved() ? 0 : duration.toSeconds({ integral: false });
}
