// Jobs that have ended, the newest of the books: as many as were asked for.

import { get } from "./api.js";
import { setClock } from "./format.js";

/** As many are asked for at first, each time as many more, and for a search all that an answer holds. */
const [ROWS, STEP, ROWS_MAX] = [200, 5, 2_000];
/** They are fetched anew no more often than this while jobs change. */
const INTERVAL_MS = 30_000;

export class EndedJobs {
  rows = new Map();
  /** There are more that can be asked for. */
  more = false;
  #wanted = ROWS;
  #said = null;
  #loaded = 0;
  #draw;

  /** `draw` is called when there is something else to show. */
  constructor(draw) {
    this.#draw = draw;
  }

  async load() {
    this.#loaded = Date.now();
    const answer = await get(`history?rows=${this.#wanted}`);
    setClock(answer.now);
    this.#said = answer;
    this.more = answer.more;
    this.rows = new Map(answer.rows.map((row) => [row.id, row]));
    this.#draw();
  }

  /** The next ones too; `all`: as many as there may be. */
  loadMore(all = false) {
    if (!this.more) return Promise.resolve();
    this.more = false;
    this.#wanted = all ? ROWS_MAX : Math.min(this.#wanted * STEP, ROWS_MAX);
    return this.load();
  }

  /** Jobs have changed. */
  async follow() {
    if (Date.now() - this.#loaded > INTERVAL_MS) await this.load();
  }

  /** How many of them are shown. */
  words(count) {
    if (!this.#said) return "Loading…";
    const { days, cut, more } = this.#said;
    const older = more ? ", and older ones" : cut ? "; sacct shows those before them" : "";
    return `${count} of the ${this.rows.size} last jobs that ended within ${days} days${older}`;
  }
}
