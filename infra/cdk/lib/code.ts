/**
 * The function's code: the output of cargo-lambda.
 */

import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import * as lambda from 'aws-cdk-lib/aws-lambda';

const BUILT = 'target/lambda/requeue-lambda';

/** `e_machine` in the header of an ELF file. */
const MACHINES: Readonly<Record<number, lambda.Architecture>> = { 0xb7: lambda.Architecture.ARM_64, 0x3e: lambda.Architecture.X86_64 };

/**
 * The user's code, or the build for the architecture. Refused are a build for another processor, and
 * a directory if the code must be signed.
 */
export function codeFor(architecture: lambda.Architecture, given: lambda.Code | undefined, isSigned = false): lambda.Code {
  if (isSigned && (given === undefined || (given instanceof lambda.AssetCode && statSync(given.path).isDirectory()))) {
    throw new Error(
      `codeSigningConfig asks for signed code, and ${given?.path ?? `${BUILT}, the default of code,`} is a directory, which CDK packs without a ` +
        "signature: give code the signed zip, for example code: lambda.Code.fromBucketV2(bucket, 'signed.zip')",
    );
  }
  if (given === undefined) return builtCode(architecture);
  const bootstrap = given instanceof lambda.AssetCode ? join(given.path, 'bootstrap') : undefined;
  const built = bootstrap !== undefined && existsSync(bootstrap) ? machine(bootstrap) : undefined;
  if (built !== undefined && built.name !== architecture.name) {
    throw new Error(`${bootstrap} is built for ${built.name}, and architecture is ${architecture.name}: give architecture or code that fit`);
  }
  return given;
}

/** The build for the architecture, in the working directory or the nearest directory above it. */
export function builtCode(architecture: lambda.Architecture): lambda.Code {
  const arm = architecture === lambda.Architecture.ARM_64;
  const remedy = `run \`cargo lambda build --release ${arm ? '--arm64 ' : ''}-p requeue-lambda\` in Requeue's directory`;
  let directory = resolve('.');
  while (!existsSync(join(directory, BUILT, 'bootstrap'))) {
    const above = dirname(directory);
    if (above === directory) {
      throw new Error(
        `there is no ${BUILT}/bootstrap in ${resolve('.')} or above: ${remedy}, or give its directory as ` +
          `code: lambda.Code.fromAsset('…/${BUILT}')`,
      );
    }
    directory = above;
  }
  const path = join(directory, BUILT);
  const built = machine(join(path, 'bootstrap'));
  if (built?.name !== architecture.name) {
    throw new Error(`${path}/bootstrap is built for ${built?.name ?? 'no processor of Lambda'}, and architecture is ${architecture.name}: ${remedy}`);
  }
  return lambda.Code.fromAsset(path);
}

function machine(path: string): lambda.Architecture | undefined {
  const file = openSync(path, 'r');
  try {
    const header = Buffer.alloc(20);
    readSync(file, header);
    return header.toString('latin1', 0, 4) === '\x7fELF' ? MACHINES[header.readUInt16LE(18)] : undefined;
  } finally {
    closeSync(file);
  }
}
