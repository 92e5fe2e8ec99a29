/** The page's script: the build puts what `script/main.ts` becomes in the place of this file. Without it pages have none. */

export const SCRIPT: string = "";
