/** Messages that an agent showed are recognized in its file. */

import { expect, test } from "vitest";
import { type MessageValue, matchStored } from "../../../src/modules/agents/behind/messages.ts";

const said = (content: string, timestamp: number) => ({ role: "user", content, timestamp });

const missingAmong = (shown: readonly MessageValue[], stored: readonly MessageValue[]) => {
  const indexes = matchStored(shown, stored);
  return shown.filter((_, n) => indexes[n] === undefined);
};

test("a message is written already with another time, or with another content, and once only", () => {
  const [first, again, other] = [said("go on", 1), said("go on", 2), said("stop", 3)];
  expect(missingAmong([first], [said("go on", 9)])).toEqual([]);
  expect(missingAmong([first], [said("go on, changed", 1)])).toEqual([]);
  expect(missingAmong([first, again], [again])).toEqual([first]);
  expect(missingAmong([first, again, other], [said("go on", 9)])).toEqual([again, other]);
});
