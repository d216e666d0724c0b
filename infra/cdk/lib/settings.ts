/**
 * The function's variables. An optional one is set only if it differs from the function's default.
 */

import { Stack } from 'aws-cdk-lib';
import type * as sqs from 'aws-cdk-lib/aws-sqs';
import type { Construct } from 'constructs';
import type { Completed } from './props.ts';

/** The variables of the ready Lambda. */
export function readyLambdaSettings(scope: Construct, options: Completed, deadLetterQueue: sqs.Queue): Record<string, string> {
  return given({
    REQUEUE_TARGET_URL: options.targetUrl,
    REQUEUE_ALLOW_HTTP: options.allowHttp ? 'true' : undefined,
    REQUEUE_METHOD: options.method === 'POST' ? undefined : options.method,
    REQUEUE_CONTENT_TYPE: options.contentType,
    REQUEUE_TIMEOUT_SECONDS: String(options.messageTimeout.toSeconds({ integral: false })),
    REQUEUE_HEADERS: options.headers && Stack.of(scope).toJsonString(options.headers),
    REQUEUE_ATTRIBUTE_HEADERS:
      options.attributeHeaders && Object.entries(options.attributeHeaders).map((pair) => pair.join('=')).join(','),
    REQUEUE_SIGNING_SECRET: options.signingSecret,
    REQUEUE_CLIENT_CERTIFICATE: options.clientCertificate,
    REQUEUE_CLIENT_KEY: options.clientKey,
    REQUEUE_SCOPE: options.scope,
    ...handlerSettings(scope, options, deadLetterQueue),
  });
}

/** The variables that every handler reads. */
export function handlerSettings(scope: Construct, options: Completed, deadLetterQueue: sqs.Queue): Record<string, string> {
  const { policy } = options;
  return given({
    REQUEUE_CONCURRENCY: options.messageConcurrency === 10 ? undefined : String(options.messageConcurrency),
    REQUEUE_POLICY: typeof policy === 'object' ? Stack.of(scope).toJsonString(policy) : policy,
    REQUEUE_STRATEGY: options.strategy === 'copy' ? undefined : options.strategy,
    REQUEUE_DEAD_LETTER: options.deadLetterMode ?? 'annotate',
    REQUEUE_DEAD_LETTER_QUEUE_URL: options.deadLetterMode === 'direct' ? deadLetterQueue.queueUrl : undefined,
    REQUEUE_MODE: options.mode === 'requeue' ? undefined : options.mode,
    REQUEUE_RECURSIVE_LOOP: 'Allow',
  });
}

function given(settings: Record<string, string | undefined>): Record<string, string> {
  return Object.fromEntries(Object.entries(settings).filter((entry): entry is [string, string] => entry[1] !== undefined));
}
