/** The processor time of this process, which is the same on a busy machine; the time that passes is not. */

/** Returns the milliseconds of the processor that this process takes for some work. */
export async function processorTimeOf(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
