/**
 * The function's variables. An optional one is set only if it differs from the function's default.
 */

import { Stack } from 'aws-cdk-lib';
import type { Construct } from 'constructs';
import type { Queues } from './permissions.ts';
import type { Completed } from './props.ts';

/** The variables of the ready Lambda. */
export function readyLambdaSettings(scope: Construct, options: Completed, queues: Queues): Record<string, string> {
  return given({
    REQUEUE_TARGET_URL: options.targetUrl,
    REQUEUE_TARGET_FUNCTION: typeof options.targetFunction === 'object' ? options.targetFunction.functionArn : options.targetFunction,
    REQUEUE_MESSAGES_PER_CALL: options.messagesPerCall === 10 ? undefined : String(options.messagesPerCall),
    REQUEUE_ALLOW_HTTP: options.allowHttp ? 'true' : undefined,
    REQUEUE_METHOD: options.method === 'POST' ? undefined : options.method,
    REQUEUE_CONTENT_TYPE: options.contentType,
    REQUEUE_TIMEOUT_SECONDS: options.targetFunction === undefined ? String(options.messageTimeout.toSeconds({ integral: false })) : undefined,
    REQUEUE_HEADERS: options.headers && Stack.of(scope).toJsonString(options.headers),
    REQUEUE_ATTRIBUTE_HEADERS:
      options.attributeHeaders && Object.entries(options.attributeHeaders).map((pair) => pair.join('=')).join(','),
    REQUEUE_SIGNING_SECRET: options.signingSecret,
    REQUEUE_CLIENT_CERTIFICATE: options.clientCertificate,
    REQUEUE_CLIENT_KEY: options.clientKey,
    REQUEUE_SCOPE: options.scope,
    REQUEUE_MAX_ENVIRONMENTS: queues.table && String(options.mostBatches),
    ...handlerSettings(scope, options, queues),
  });
}

/** Lambda's limit for all variables of a function. */
const MOST_BYTES = 4096;

/**
 * The problem with the size of the variables. Lambda counts them as JSON. References that CloudFormation
 * resolves do not count here.
 */
export function sizeProblem(scope: Construct, settings: Readonly<Record<string, string>>): string | undefined {
  const known = Object.entries(settings).map(([name, value]) => [name, literal(Stack.of(scope).resolve(value))] as const);
  const bytes = Buffer.byteLength(JSON.stringify(Object.fromEntries(known)));
  if (bytes <= MOST_BYTES) return undefined;
  const [[largest] = ['']] = known.sort(([, one], [, other]) => other.length - one.length);
  return (
    `the function's variables take ${bytes} bytes, and Lambda allows ${MOST_BYTES}, with each quotation mark of ${largest} counted twice: ` +
    'shorten it, or store it as a secret or parameter and give its ARN'
  );
}

/** The text that is known at synthesis. */
function literal(node: unknown): string {
  if (typeof node === 'string') return node;
  const { 'Fn::Join': join } = Object(node) as { 'Fn::Join'?: [string, unknown[]] };
  return join ? join[1].map(literal).join(join[0]) : '';
}

/** The variables that every handler reads. */
export function handlerSettings(scope: Construct, options: Completed, { deadLetterQueue, table }: Queues): Record<string, string> {
  const { policy } = options;
  return given({
    REQUEUE_CONCURRENCY: options.messageConcurrency === 10 ? undefined : String(options.messageConcurrency),
    REQUEUE_POLICY: typeof policy === 'object' ? Stack.of(scope).toJsonString(policy) : policy,
    REQUEUE_TABLE: table?.tableName,
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
