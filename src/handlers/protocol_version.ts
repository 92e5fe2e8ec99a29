/** Version of the wire protocol: raised when a host that works today could break. */
export const PROTOCOL_VERSION = 1 as const;

/** Versions of the session format that can be opened. */
export const FORMATS = [1, 2, 3] as const;
