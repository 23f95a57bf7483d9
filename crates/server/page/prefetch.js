// Answers that were asked for before the view that shows them was there.

/** The longest that any answer is waited for. */
export const TIMEOUT_MS = 60_000;

const asked = new Map();

export function prefetch(path) {
  const answer = fetch(`/api/web/${path}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  // Whoever takes the answer sees why there is none.
  answer.catch(() => {});
  asked.set(path, answer);
}

/** The answer to such a request, once; nothing where there was none. */
export function prefetched(path) {
  const answer = asked.get(path);
  asked.delete(path);
  return answer;
}

/** What the first view did not take is out of date for the next, and holds no connection. */
export function forgetPrefetched() {
  for (const answer of asked.values()) answer.then((one) => one.body?.cancel()).catch(() => {});
  asked.clear();
}
