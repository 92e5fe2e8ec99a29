/** The error of a wrong command line. */

/** A wrong command line; the message says what to change. */
export class UsageError extends Error {}
