/** The program's version. A test checks that package.json has the same. */
export const VERSION = "0.1.0";
/** The oldest version of Node that is supported. The same test checks it. */
export const OLDEST_NODE = "20.19";
