/**
 * The stores of sessions that are no session files. The built library has them in a file of their own, which it loads with
 * the first such session: importing the library takes half of the time without them.
 */

export { makeForeignStore as foreignStore } from "../modules/foreign/files/store.ts";
export { makeSegmentedStore as segmentedStore } from "../storage/v2/store.ts";
