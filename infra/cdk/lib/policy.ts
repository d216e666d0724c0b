/**
 * The policy document, as `infra/policy.schema.json` has it: its types, what is wrong with one, and how long it tries.
 */

import { problemsOf, type Schema } from './schema.ts';
import { shared } from './shared.ts';

/** The built-in policies. */
export type Preset = 'standard' | 'high-volume' | 'critical';

/** How delays are spread. */
export type Jitter = JitterWord | { readonly proportional: number };
export type JitterWord = 'full' | 'equal' | 'decorrelated' | 'none';

/** How delays grow: a word, or a list of seconds of which the last one repeats. */
export type Backoff = BackoffWord | readonly number[];
export type BackoffWord = 'exponential' | 'linear' | 'fibonacci' | 'constant';

/** What a failure is. */
export type FailureClass = Exclude<keyof ErrorConfigs, 'DEFAULT'> | 'NON_RETRYABLE';

/** The retry policy. Every key may be left out; numbers are seconds, and may have fractions. */
export interface RetryPolicy {
  /** Where an editor finds the schema. */
  readonly $schema?: string;
  /**
   * The built-in policy, which the other keys change.
   * @default 'standard'
   */
  readonly preset?: Preset;
  /** Most retries for failures of any class. */
  readonly maxRetries?: number;
  readonly backoff?: Backoff;
  /** By what an exponential delay is multiplied each time. */
  readonly baseDelayMultiplier?: number;
  /** The longest delay of classes that name no `maxDelay`. */
  readonly maxDelaySeconds?: number;
  readonly jitter?: Jitter;
  /** The same as `{ proportional: share }` for `jitter`. */
  readonly jitterPercentage?: number;
  /** No retry later than this after the message was first received. */
  readonly totalTimeoutSeconds?: number;
  /** The longest delay that a failure itself may name. */
  readonly maxRetryAfterSeconds?: number;
  /** A message older than this when its turn comes is dead-lettered without a call. */
  readonly messageTtlSeconds?: number;
  /** Most copies in a row because it was not the message's turn. Then its handler runs, or it is left to SQS if the invocation has no time left. */
  readonly maxDeferrals?: number;
  /** The longest wait between two of them, before it is spread over up to twice the time. */
  readonly maxDeferralSeconds?: number;
  /** How often in a row the handler may ask for a later time. */
  readonly maxPostponements?: number;
  /** How long a failure that names a delay keeps other messages of its scope back, at most. */
  readonly maxPauseSeconds?: number | 'off';
  /** When a downstream service that keeps failing is left alone. */
  readonly circuitBreaker?: CircuitBreaker | 'off';
  /** The delays and budgets of each class of failures. */
  readonly errorConfigs?: ErrorConfigs;
  /** What failures are, asked in this order and before anything built in: the first rule that matches wins. */
  readonly rules?: readonly Rule[];
  /** How calls to SQS that fail are tried again, which is no retry of a message. */
  readonly sqsCalls?: Calls | 'off';
  /** The same for the receiving of a worker; nothing to a Lambda function. */
  readonly receiveCalls?: Calls;
  /** Settings of the queue, which are not applied: `requeue check` compares them with what the policy needs. */
  readonly queueConfig?: QueueConfig;
}

/** The settings of a queue; the construct has properties of its own for them. */
export interface QueueConfig {
  /** How long a received message is hidden. */
  readonly visibilityTimeout?: number;
  /** How long the queue keeps a message. */
  readonly messageRetentionPeriod?: number;
  /** After how many receives the redrive policy moves a message. */
  readonly maxReceiveCount?: number;
  /** How long a new message is delayed. */
  readonly delaySeconds?: number;
  /** How long a receive waits for a message. */
  readonly receiveMessageWaitTimeSeconds?: number;
}

/** The delays and budgets of each class of failures. Each has two names, of which one may be given; `DEFAULT` serves the classes without an entry. */
export interface ErrorConfigs {
  readonly RATE_LIMIT?: ClassPolicy;
  readonly RATE_LIMIT_EXCEEDED?: ClassPolicy;
  readonly QUOTA?: ClassPolicy;
  readonly QUOTA_EXCEEDED?: ClassPolicy;
  readonly TEMPORARY?: ClassPolicy;
  readonly TEMPORARY_ERROR?: ClassPolicy;
  readonly DEFAULT?: ClassPolicy;
}

/** The patience for one class of failures. */
export interface ClassPolicy {
  readonly backoff?: Backoff;
  /** The first delay. */
  readonly baseDelay?: number;
  /** By what an exponential delay is multiplied each time. */
  readonly multiplier?: number;
  /** The longest delay. */
  readonly maxDelay?: number;
  readonly jitter?: Jitter;
  /** Most retries for failures of this class. */
  readonly maxRetries?: number;
  /** No retry for a failure of this class later than this after the message was first received. */
  readonly totalTimeoutSeconds?: number;
}

/** When the circuit of a service that fails opens: messages are deferred without a call. */
export interface CircuitBreaker {
  /** So many failures in a row open the circuit, and up to ten times as many where some calls succeed. */
  readonly threshold?: number;
  /** The longest time between two rounds of probes. */
  readonly resetTimeoutSeconds?: number;
}

/** What failures are. */
export interface Rule {
  /** What the failure must be like; all that is given must hold. */
  readonly match: RuleMatch;
  /** What the failure then is. */
  readonly class: FailureClass;
  /** What the message then waits at least, whatever the response names. */
  readonly delaySeconds?: number;
  /** What logs and dead letters call the failure, for example `outdated-fare`. */
  readonly reason?: string;
}

/** What a failure must be like. */
export interface RuleMatch {
  /** The status of the response, or one of a list. */
  readonly status?: Status | readonly Status[];
  /** A code or reason in the response's body, or of the error; or one of a list. */
  readonly code?: string | readonly string[];
  /** Headers that the response must have: `true` for any value, or the value. */
  readonly header?: Readonly<Record<string, string | true>>;
  /** Whole words in this order in the response's body or in the error's message; or one of a list. */
  readonly words?: string | readonly string[];
}
export type Status = number | StatusWord;
export type StatusWord = '3xx' | '4xx' | '5xx';

/** How calls to SQS are tried again. */
export interface Calls {
  /** Most attempts, the first one included. */
  readonly maxAttempts?: number;
  /** The first pause. */
  readonly baseDelay?: number;
  readonly multiplier?: number;
  /** The longest pause. */
  readonly maxDelay?: number;
  readonly jitter?: Jitter;
}

const HOUR = 3600;

/** After how many seconds the built-in policies end: for rate-limit, quota and temporary failures. */
export const AGES: Readonly<Record<Preset, readonly [number, number, number]>> = {
  standard: [12 * HOUR, 48 * HOUR, 12 * HOUR],
  'high-volume': [HOUR, HOUR, HOUR],
  critical: [600, 600, 600],
};

/** What is wrong with the document: one sentence for each problem, with the path of the key. */
export function policyProblems(policy: unknown): string[] {
  const schema = JSON.parse(shared('policy.schema.json')) as Schema;
  return problemsOf(policy, schema, 'policy', schema.$defs ?? {});
}

/** The longest time in seconds after which a message is still tried again. The policy must be without problems. */
export function longestAge(policy: RetryPolicy): number {
  const entries = policy.errorConfigs ?? {};
  const classes = [
    entries.RATE_LIMIT ?? entries.RATE_LIMIT_EXCEEDED,
    entries.QUOTA ?? entries.QUOTA_EXCEEDED,
    entries.TEMPORARY ?? entries.TEMPORARY_ERROR,
  ];
  const ages = AGES[policy.preset ?? 'standard'];
  return Math.max(
    ...classes.map((own, index) => (own ?? entries.DEFAULT)?.totalTimeoutSeconds ?? policy.totalTimeoutSeconds ?? ages[index]!),
  );
}
