/** Times as local clocks show them. The page has them in UTC, because its maker does not know where it is read. */

const two = (value: number): string => String(value).padStart(2, "0");

/** Returns the day of a moment, and its time to the minute. */
export function toLocalTime(moment: Date): { readonly day: string; readonly time: string } {
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return { day, time: `${two(moment.getHours())}:${two(moment.getMinutes())}` };
}

/** Shows the times in an element so. Each that had its day keeps it, and so does the first of another day. */
export function showLocalTimes(element: ParentNode): void {
  let before: string | undefined;
  for (const shown of element.querySelectorAll("time")) {
    const moment = new Date(shown.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const { day, time } = toLocalTime(moment);
    const hasDay = shown.textContent.length > time.length || (before !== undefined && before !== day);
    const text = hasDay ? `${day} ${time}` : time;
    if (shown.textContent !== text) shown.textContent = text;
    shown.title = `${day} ${time}`;
    before = day;
  }
  for (const zone of element.querySelectorAll("time + .dim")) if (zone.textContent === "UTC") zone.remove();
}
