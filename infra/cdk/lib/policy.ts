/**
 * The policy document, as in `infra/policy.schema.json`: its types, its problems, and how long it
 * retries a message.
 */

import { problemsOf, type Schema } from './schema.ts';
import { shared } from './shared.ts';
import { TABLE } from './table.ts';

/** The built-in policies. */
export type Preset = 'standard' | 'high-volume' | 'critical';

/** The random part of each delay. */
export type Jitter = JitterWord | { readonly proportional: number };
export type JitterWord = 'full' | 'equal' | 'decorrelated' | 'none';

/** How delays grow: a word, or a list of seconds. The last delay of a list repeats. */
export type Backoff = BackoffWord | readonly number[];
export type BackoffWord = 'exponential' | 'linear' | 'fibonacci' | 'constant';

/** The class of a failure. */
export type FailureClass = Exclude<keyof ErrorConfigs, 'default' | 'DEFAULT'> | 'non-retryable' | 'NON_RETRYABLE';

/** The retry policy. Every key is optional. Delays and times are seconds, with fractions. */
export interface RetryPolicy {
  /** The address of the schema, for an editor. Requeue ignores it. */
  readonly $schema?: string;
  /**
   * The built-in policy, which the other keys change.
   * @default 'standard'
   */
  readonly preset?: Preset;
  /** Most retries of a message, over all classes of failures. No class can have more. */
  readonly maxRetries?: number;
  readonly backoff?: Backoff;
  /** The factor by which an exponential delay grows each time. */
  readonly baseDelayMultiplier?: number;
  /** The longest delay of classes without a `maxDelay`. */
  readonly maxDelaySeconds?: number;
  readonly jitter?: Jitter;
  /** The same as `{ proportional: share }` for `jitter`: 0.1 takes up to a tenth off each delay. */
  readonly jitterPercentage?: number;
  /**
   * No retry starts later than this after the first receive. For classes without a
   * `totalTimeoutSeconds`.
   */
  readonly totalTimeoutSeconds?: number;
  /** The longest delay that a failure itself may name (`Retry-After`). Longer ones are cut to it. */
  readonly maxRetryAfterSeconds?: number;
  /**
   * If a message is older than this when its turn comes, Requeue dead-letters it without a call.
   * Counted since it was first sent.
   */
  readonly messageTtlSeconds?: number;
  /**
   * Most deferrals of a message in a row. Then its handler runs, or the message is left to SQS if
   * the invocation has no time left.
   */
  readonly maxDeferrals?: number;
  /** The longest deferral, before jitter. Jitter may double it. */
  readonly maxDeferralSeconds?: number;
  /** How often in a row the handler may postpone a message. */
  readonly maxPostponements?: number;
  /** The longest pause of a scope after a failure that names a delay. Then one message probes. */
  readonly maxPauseSeconds?: number | 'off';
  /** Stops calls to a downstream service that keeps failing. */
  readonly circuitBreaker?: CircuitBreaker | 'off';
  /**
   * The calls that a downstream service takes. Messages without room wait, and use no retry. Without
   * `sharedTable`, each execution environment counts its own calls.
   */
  readonly rateLimit?: RateLimit;
  /** Several rate limits: that of all messages, and up to two with a key. Not beside `rateLimit`. */
  readonly limits?: readonly RateLimit[];
  /** Calls the handler once for each event. It needs a table. */
  readonly idempotency?: Idempotency;
  /** Delays and budgets for each class of failures. */
  readonly errorConfigs?: ErrorConfigs;
  /**
   * Your rules for the class of a failure. Requeue tries them in this order, before its built-in
   * rules. The first rule that matches wins.
   */
  readonly rules?: readonly Rule[];
  /** How Requeue repeats a failed call to SQS, which is no retry of a message. */
  readonly sqsCalls?: Calls | 'off';
  /** How a worker repeats a failed receive. A Lambda function ignores it. */
  readonly receiveCalls?: Calls;
  /**
   * The queue's settings. Requeue does not apply them; `requeue check` compares them with the
   * needs of the policy.
   */
  readonly queueConfig?: QueueConfig;
  /** The policies of single queues, by the queue's name. An entry takes no key from this policy. */
  readonly queues?: Readonly<Record<string, QueuePolicy>>;
}

/** The policy of one queue, and all else that differs for its messages. */
export interface QueuePolicy extends Omit<RetryPolicy, '$schema' | 'sqsCalls' | 'receiveCalls' | 'queues'> {
  /** The longest run of one handler. */
  readonly timeoutSeconds?: number;
  /** The highest number of handlers at once. */
  readonly concurrency?: number;
  /** `redrive`, `annotate`, or for the mode `direct` the URL of the dead-letter queue. */
  readonly deadLetter?: string;
}

/** The settings of a queue. The construct takes none from here; it has options of its own. */
export interface QueueConfig {
  /** How long SQS hides a received message. */
  readonly visibilityTimeout?: number;
  /** How long SQS keeps a message. */
  readonly messageRetentionPeriod?: number;
  /** Receives after which the redrive policy moves a message. */
  readonly maxReceiveCount?: number;
  /** How long SQS delays a new message. */
  readonly delaySeconds?: number;
  /** How long a receive waits for a message. */
  readonly receiveMessageWaitTimeSeconds?: number;
}

/**
 * Delays and budgets for each class of failures. `default` serves the classes without an entry. The
 * names in capitals are older ones.
 */
export interface ErrorConfigs {
  readonly 'rate-limit'?: ClassPolicy;
  readonly quota?: ClassPolicy;
  readonly temporary?: ClassPolicy;
  readonly default?: ClassPolicy;
  readonly RATE_LIMIT?: ClassPolicy;
  readonly RATE_LIMIT_EXCEEDED?: ClassPolicy;
  readonly QUOTA?: ClassPolicy;
  readonly QUOTA_EXCEEDED?: ClassPolicy;
  readonly TEMPORARY?: ClassPolicy;
  readonly TEMPORARY_ERROR?: ClassPolicy;
  readonly DEFAULT?: ClassPolicy;
}

/** Delays and budgets for one class of failures. */
export interface ClassPolicy {
  readonly backoff?: Backoff;
  /** The first delay. */
  readonly baseDelay?: number;
  /** The factor by which an exponential delay grows each time. */
  readonly multiplier?: number;
  /** The longest delay. */
  readonly maxDelay?: number;
  readonly jitter?: Jitter;
  /**
   * Most retries for failures of this class. The policy's `maxRetries` still bounds all classes
   * together.
   */
  readonly maxRetries?: number;
  /**
   * No retry for a failure of this class starts later than this after the first receive. It
   * replaces the policy's `totalTimeoutSeconds`, shorter or longer.
   */
  readonly totalTimeoutSeconds?: number;
}

/** When the circuit of a failing service opens. Requeue then defers messages without a call. */
export interface CircuitBreaker {
  /**
   * Failures in a row, of so many messages, that open the circuit. If some calls get a response, it
   * takes up to ten times as many.
   */
  readonly threshold?: number;
  /** The longest time in which no message may probe. */
  readonly resetTimeoutSeconds?: number;
}

/** The calls that a downstream service takes. */
export interface RateLimit {
  /**
   * The limit holds for each value at this place, which is written as that of `fairBy`.
   * @default - it holds for all messages
   */
  readonly key?: string;
  /** Calls in each period. */
  readonly limit: number;
  /** The period. */
  readonly periodSeconds?: number;
  /** Calls that may come at once after a time without calls. */
  readonly burst?: number;
  /** How long a copy may wait inside the function for its call. */
  readonly maxReservationSeconds?: number;
  /** Whether refused calls lower the limit for a while. */
  readonly adaptive?: boolean;
  /** Whether the limit follows headers such as `X-RateLimit-Remaining` and `X-RateLimit-Reset`. */
  readonly headers?: boolean;
  /**
   * Whether the limit counts a call of several messages once, or each of its messages.
   * @default 'call'
   */
  readonly per?: LimitPer;
  /**
   * The place of a message's units, a number: the limit counts them instead of calls.
   * @default - each call has one unit
   */
  readonly units?: string;
  /**
   * The place of a message's tenant: a JSON pointer into the body, `MessageGroupId`, or the name of a
   * message attribute. Each tenant gets its share of the calls.
   * @default - messages are called in their order
   */
  readonly fairBy?: string;
  /** The shares of tenants by their values, 1 to 255. */
  readonly weights?: Readonly<Record<string, number>>;
}

/** A call of several messages counts once, or each of its messages counts. */
export type LimitPer = 'call' | 'message';

/** The events for which the handler is called once. */
export interface Idempotency {
  /**
   * The place of the event's name in the body, a JSON pointer.
   * @default - the id of the message's first delivery
   */
  readonly key?: string;
  /** How long an event counts as done after its success. */
  readonly keepSeconds?: number;
  /** Whether a message is called or waits while the table does not respond. */
  readonly whenUnavailable?: WhenUnavailable;
}

/** How a message proceeds while the table does not respond. */
export type WhenUnavailable = 'call' | 'defer';

/** A rule of your own for the class of a failure. */
export interface Rule {
  /** The conditions, all of which must hold. */
  readonly match: RuleMatch;
  /** The class of the failure. */
  readonly class: FailureClass;
  /** The message waits at least this long, whatever delay the response names. */
  readonly delaySeconds?: number;
  /**
   * The name of the failure in logs and dead letters, for example `outdated-fare`.
   * @default - the position of the rule
   */
  readonly reason?: string;
}

/** The conditions of a rule. */
export interface RuleMatch {
  /** The status of the response, or a list of these. A 2xx is a success unless a rule names it; 200 and 2xx need another condition. */
  readonly status?: Status | readonly Status[];
  /** A code or reason in the response's body or of the error, or a list of these. */
  readonly code?: string | readonly string[];
  /** Headers of the response, each with its value in any case, or `true` for any value. */
  readonly header?: Readonly<Record<string, string | true>>;
  /**
   * Whole words that follow each other, in the response's body or the error's message; or a list.
   */
  readonly words?: string | readonly string[];
}
export type Status = number | StatusWord;
export type StatusWord = '2xx' | '3xx' | '4xx' | '5xx';

/** How Requeue repeats failed calls to SQS. */
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

/** The problems of a document, one sentence for each, with the path of the key. */
export function policyProblems(policy: unknown): string[] {
  const schema = JSON.parse(shared('policy.schema.json')) as Schema;
  return problemsOf(policy, schema, 'policy', schema.$defs ?? {});
}

/** The longest age in seconds at which a message is still retried. The policy must be valid. */
export function longestAge(policy: RetryPolicy): number {
  const { totalTimeoutSeconds: ages } = TABLE.presets[policy.preset ?? 'standard'];
  return Math.max(...classes(policy).map((entry, index) => seconds(entry?.totalTimeoutSeconds ?? policy.totalTimeoutSeconds ?? ages[index]!)));
}

/** A number of seconds, or a duration as in `12h`, which documents from elsewhere may have. */
function seconds(age: number | string): number {
  const units: Record<string, number> = { d: 86_400, h: 3_600, m: 60, s: 1 };
  const parts = [...String(age).matchAll(/(\d+)([dhms])/g)];
  return parts.length === 0 ? Number(age) : parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit!]!, 0);
}

/** The most retries of a message whose failures are all of one class. The policy must be valid. */
export function mostRetries(policy: RetryPolicy): number {
  const all = policy.maxRetries ?? TABLE.presets[policy.preset ?? 'standard'].maxRetries;
  return Math.max(...classes(policy).map((entry) => Math.min(entry?.maxRetries ?? all, all)));
}

/** The entries for rate limit, quota and temporary. */
function classes({ errorConfigs: entries = {} }: RetryPolicy): (ClassPolicy | undefined)[] {
  const own = [
    entries['rate-limit'] ?? entries.RATE_LIMIT ?? entries.RATE_LIMIT_EXCEEDED,
    entries.quota ?? entries.QUOTA ?? entries.QUOTA_EXCEEDED,
    entries.temporary ?? entries.TEMPORARY ?? entries.TEMPORARY_ERROR,
  ];
  return own.map((entry) => entry ?? entries.default ?? entries.DEFAULT);
}
