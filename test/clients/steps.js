/** Steps that a client takes, one after the other: each works, or says why not. */

const LONGEST = 30_000;

/** The steps of one client with one agent. */
export class Steps {
  done = [];

  /** Takes a step. An exception says why it does not work; the next one is taken in any case. */
  async take(name, work) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer in ${LONGEST / 1000} s`)), LONGEST);
    });
    try {
      const result = await Promise.race([work(), late]);
      this.note(name);
      return result;
    } catch (error) {
      this.note(name, String(error?.message ?? error));
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Notes the result of a step, and why it does not work. */
  note(name, why) {
    this.done.push(why === undefined ? { name } : { name, why: why.split("\n")[0].slice(0, 160) });
  }

  get failures() {
    return this.done.filter(({ why }) => why !== undefined);
  }
}

export function require(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

/** Waits until something is so, which some message or file will make it. */
export async function until(isSo, what) {
  const end = Date.now() + LONGEST - 2000;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`${what} did not come`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
