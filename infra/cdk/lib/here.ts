/** The directory of this file. `npm pack` replaces the compiled file, since CommonJS has another name for it. */

// @ts-ignore In the build, this is no module.
export const HERE: string = import.meta.dirname;
