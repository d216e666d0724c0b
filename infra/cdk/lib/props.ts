/**
 * The options of the construct, and their defaults.
 */

import { Duration } from 'aws-cdk-lib';
import type * as kms from 'aws-cdk-lib/aws-kms';
import * as lambda from 'aws-cdk-lib/aws-lambda';
import type * as logs from 'aws-cdk-lib/aws-logs';
import type * as secretsmanager from 'aws-cdk-lib/aws-secretsmanager';
import type * as sns from 'aws-cdk-lib/aws-sns';
import type * as ssm from 'aws-cdk-lib/aws-ssm';
import { type Checked, longestMessage, seconds } from './checks.ts';
import type { RetryPolicy } from './policy.ts';

/** Options of `RetryQueue`. */
export interface RetryQueueProps {
  /** Where each message is POSTed (https). Give either this or `handler`. */
  readonly targetUrl?: string;
  /**
   * A function of your own whose handler handles the messages, in the same stack. The construct makes no function then. It sets the handler's
   * `RecursiveLoop` and `REQUEUE_…` variables, and lets its role use the queue. Its timeout decides the visibility timeout. A function may
   * handle several queues if their options lead to the same variables.
   */
  readonly handler?: lambda.Function;
  /**
   * The HTTP method.
   * @default 'POST'
   */
  readonly method?: 'POST' | 'PUT' | 'PATCH';
  /**
   * `Content-Type` of messages without the attribute `Body.ContentType`.
   * @default - by the look of the body
   */
  readonly contentType?: string;
  /**
   * How long the endpoint, or the handler, may take for one message. It must fit into `timeout`, of which 5 s, but at most a quarter, are kept for settling.
   * @default - 10 s; the library's own 30 s for a handler
   */
  readonly messageTimeout?: Duration;
  /**
   * Most messages of one batch that are on their way to the endpoint at a time.
   * @default 10
   */
  readonly messageConcurrency?: number;

  /**
   * Headers of every request. They stand in the template and in the function's configuration as they are, so let the ARN of a secret stand in
   * place of a secret word: ``{ Authorization: `Bearer ${secret.secretArn}:token::` }``, and name it in `secrets` or `parameters`.
   * @default - none
   */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Message attributes that go along as headers: `{ tenant: 'X-Tenant' }`.
   * @default - none
   */
  readonly attributeHeaders?: Readonly<Record<string, string>>;
  /**
   * Signs every request as Standard Webhooks has it: the ARN of a secret or parameter that holds `whsec_` and 24 to 64 bytes in base64, or, less
   * well, that itself. While one secret replaces another both, separated by a space.
   * @default - not signed
   */
  readonly signingSecret?: string;
  /**
   * The certificate that the endpoint is shown if it asks for one (mutual TLS): the ARN of a secret or parameter that holds it in PEM, or, less well,
   * that itself. Needs `clientKey`.
   * @default - none
   */
  readonly clientCertificate?: string;
  /**
   * The private key of that certificate, not encrypted: the ARN of a secret or parameter that holds it in PEM, or, less well, that itself.
   * @default - none
   */
  readonly clientKey?: string;
  /**
   * Secrets that the options above name. The function may read them, and decrypt with the keys that they know of.
   * @default - none
   */
  readonly secrets?: readonly secretsmanager.ISecret[];
  /**
   * Parameters that the options above name. The function may read them, and decrypt with the keys that they know of.
   * @default - none
   */
  readonly parameters?: readonly ssm.IParameter[];

  /**
   * The retry policy, or its JSON.
   * @default - the built-in policy `standard`
   */
  readonly policy?: RetryPolicy | string;
  /**
   * Which messages are paused together when the endpoint asks for a pause or is down: those with the same value of a message attribute, for example
   * `tenant`, or at a JSON pointer into the body, for example `/account/id`.
   * @default - all
   */
  readonly scope?: string;
  /**
   * How a message waits for its retry: in a copy, or in its place in the queue, as always in a FIFO queue. In its place each receive is a retry, so
   * `maxReceiveCount` must be above the policy's `maxRetries`.
   * @default 'copy'
   */
  readonly strategy?: 'copy' | 'visibility';
  /**
   * How a message that is given up reaches the dead-letter queue: as a copy that says why, moved by SQS (annotate); as it is, once SQS
   * has moved it after maxReceiveCount receives (redrive); as such a copy that the function sends there (direct).
   * @default 'annotate'
   */
  readonly deadLetterMode?: 'annotate' | 'redrive' | 'direct';
  /**
   * What is done about failures. In an emergency, `report` only sorts and logs them and leaves each to SQS.
   * @default 'requeue'
   */
  readonly mode?: 'requeue' | 'report';

  /**
   * The function's code, for `architecture`.
   * @default - `target/lambda/requeue-lambda`, where cargo-lambda leaves it, in the working directory or the nearest directory above it
   */
  readonly code?: lambda.Code;
  /** @default lambda.Architecture.ARM_64 */
  readonly architecture?: lambda.Architecture;
  /**
   * Memory of the function in MB; its share of a processor grows with it.
   * @default 256
   */
  readonly memorySize?: number;
  /**
   * How long one batch may take.
   * @default Duration.seconds(60)
   */
  readonly timeout?: Duration;
  /**
   * Most messages in one invocation. More than 10 need `maxBatchingWindow`.
   * @default 10
   */
  readonly batchSize?: number;
  /**
   * How long SQS messages are gathered before the function is invoked.
   * @default Duration.seconds(0)
   */
  readonly maxBatchingWindow?: Duration;
  /**
   * Most batches at a time; the endpoint sees at most this many times `messageConcurrency`.
   * @default 10
   */
  readonly maxConcurrency?: number;
  /** @default logs.RetentionDays.ONE_MONTH */
  readonly logRetention?: logs.RetentionDays;

  /**
   * What the names of the queues and of the log group begin with, at most 67 letters, digits, hyphens and underscores. The queues are named
   * because each names the other; another name replaces them, with all that is in them.
   * @default - a unique one of the stack's name and the construct's id
   */
  readonly name?: string;
  /**
   * Whether both queues are FIFO queues. Then `deadLetterMode` should be `direct`: `annotate` says no reason there, as `redrive` does.
   * @default false
   */
  readonly fifo?: boolean;
  /**
   * The key with which the queues are encrypted.
   * @default - keys of SQS
   */
  readonly encryptionKey?: kms.IKey;
  /**
   * For how long a message that is handed to the function is hidden.
   * @default - 6 × `timeout` + 20 s, or + `maxBatchingWindow` where that is longer: AWS's rule
   */
  readonly visibilityTimeout?: Duration;
  /**
   * How long a message may wait in a backlog. Every retry begins it anew. The dead-letter queue, which counts from the same moment, keeps
   * messages for 14 days.
   * @default Duration.days(7)
   */
  readonly retentionPeriod?: Duration;
  /**
   * After so many deliveries that ended without an answer SQS moves a message to the dead-letter queue.
   * @default 5
   */
  readonly maxReceiveCount?: number;
  /**
   * A topic whose messages come into the queue as they were published, attributes included. SQS takes ten of these: what has more, or cannot be
   * delivered for another reason, goes to the dead-letter queue.
   * @default - none: messages are sent to the queue
   */
  readonly topic?: sns.ITopic;
  /**
   * Values of the message attribute `operation` for which the topic's messages come into the queue.
   * @default - all messages
   */
  readonly topicOperations?: readonly string[];

  /**
   * What watches over it.
   * @default 'alarms-and-dashboard'
   */
  readonly monitoring?: 'alarms-and-dashboard' | 'alarms' | 'none';
  /**
   * Messages that may wait for a batch before an alarm. Those that wait for the time of their retry do not count.
   * @default 5000
   */
  readonly maxQueueDepth?: number;
  /**
   * How old a message may get, all its retries included, before an alarm. Raise it where the policy waits longer in the ordinary course.
   * @default Duration.minutes(15)
   */
  readonly maxMessageAge?: Duration;
  /**
   * Address that is told of alarms and of their end, by a topic of the construct. It receives a mail and has to confirm.
   * @default - none
   */
  readonly alarmEmail?: string;
  /**
   * A topic that is told of alarms and of their end. CloudWatch must be allowed to publish there.
   * @default - none
   */
  readonly alarmTopic?: sns.ITopic;
}

/** The options with their defaults. */
export type Completed = RetryQueueProps & Checked & { readonly architecture: lambda.Architecture };

export function completed(props: RetryQueueProps): Completed {
  const { handler } = props;
  // A function without a timeout has Lambda's.
  const timeout = handler ? (handler.timeout ?? Duration.seconds(3)) : (props.timeout ?? Duration.seconds(60));
  const maxBatchingWindow = props.maxBatchingWindow ?? Duration.seconds(0);
  return {
    ...props,
    // The library cuts its default to what the function's timeout leaves.
    messageTimeout: props.messageTimeout ?? Duration.seconds(handler ? Math.min(30, longestMessage(seconds(timeout))) : 10),
    messageConcurrency: props.messageConcurrency ?? 10,
    architecture: props.architecture ?? lambda.Architecture.ARM_64,
    memorySize: props.memorySize ?? 256,
    timeout,
    batchSize: props.batchSize ?? 10,
    maxBatchingWindow,
    maxConcurrency: props.maxConcurrency ?? 10,
    visibilityTimeout: props.visibilityTimeout ?? Duration.seconds(Math.ceil(6 * seconds(timeout) + Math.max(20, seconds(maxBatchingWindow)))),
    retentionPeriod: props.retentionPeriod ?? Duration.days(7),
    maxReceiveCount: props.maxReceiveCount ?? 5,
    monitoring: props.monitoring ?? 'alarms-and-dashboard',
    maxQueueDepth: props.maxQueueDepth ?? 5000,
    maxMessageAge: props.maxMessageAge ?? Duration.minutes(15),
  };
}
