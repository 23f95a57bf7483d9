// The queue as this page knows it. It is fetched whole once, and then what changed.

import { get } from "./api.js";
import { setClock } from "./format.js";

/** Reasons and expected starts change without a change of the job: everything is fetched anew this often. */
const WHOLE_MS = 60_000;

class QueueStore extends EventTarget {
  rows = new Map();
  cut = false;
  #seq = null;
  #wholeAt = 0;
  #running = null;
  #again = false;
  /** Counts the users whose queue this was: a fetch for the one before fills nothing in. */
  #epoch = 0;

  /** Fetches what changed; several at once are one. Fails as the fetch does. */
  refresh() {
    if (this.#running) {
      this.#again = true;
      return this.#running;
    }
    const epoch = this.#epoch;
    this.#running = this.#fetch(epoch).finally(() => {
      if (epoch !== this.#epoch) return;
      this.#running = null;
      if (this.#again) {
        this.#again = false;
        this.refresh().catch(() => {});
      }
    });
    return this.#running;
  }

  forget() {
    this.#epoch += 1;
    this.#running = null;
    this.#again = false;
    this.rows.clear();
    this.cut = false;
    this.#seq = null;
  }

  async #fetch(epoch) {
    const isWhole = this.#seq === null || Date.now() - this.#wholeAt > WHOLE_MS;
    const answer = await get(isWhole ? "jobs" : `jobs?since=${this.#seq}`);
    if (epoch !== this.#epoch) return;
    setClock(answer.now);
    if (answer.whole) {
      this.rows.clear();
      this.#wholeAt = Date.now();
      this.cut = answer.cut;
    }
    for (const row of answer.rows) this.rows.set(row.id, row);
    for (const id of answer.gone) this.rows.delete(id);
    this.#seq = answer.seq;
    this.dispatchEvent(new Event("change"));
  }
}

export const queue = new QueueStore();
