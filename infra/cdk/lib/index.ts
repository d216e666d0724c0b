export * from './retry-queue.ts';
export type * from './policy.ts';
