export { RetryQueue } from './retry-queue.ts';
export type { RetryQueueProps } from './props.ts';
export type * from './policy.ts';
