/** The word that is meant by one that does not exist. */

/** Letters that may differ in words of so many letters. */
function tolerance(length: number): number {
  return length < 3 ? 0 : length < 5 ? 1 : length < 9 ? 2 : 3;
}

/** Returns the known word that is nearest to a word, if one is near: mistyped, or only its beginning. */
export function findNearest(word: string, known: readonly string[]): string | undefined {
  const bare = bareOf(word);
  let nearest: string | undefined;
  let least = tolerance(bare.length) + 1;
  for (const name of known) {
    const distance = distanceOf(bare, bareOf(name), least);
    if (distance >= least) continue;
    nearest = name;
    least = distance;
  }
  return nearest ?? known.find((name) => bare.length >= 2 && bareOf(name).startsWith(bare));
}

function bareOf(word: string): string {
  return word.replace(/^-+/, "").toLowerCase();
}

/** Returns how many letters are missing, too many, wrong or swapped; `most` when there are at least so many. */
function distanceOf(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) >= most) return most;
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (isSame ? 0 : 1));
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwapped) row[j] = Math.min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return Math.min(most, last[b.length]);
}
