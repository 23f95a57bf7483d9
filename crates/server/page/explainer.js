// Says what somebody points at on a timeline, and why a job of it waits.

import { get } from "./api.js";
import { h } from "./dom.js";
import { words } from "./job_text.js";

/** Whoever only passes over a bar asks nothing. */
const PAUSE_MS = 400;

export class Explainer {
  element = h("p", { class: "explain", role: "status" }, "Point at a bar, or go to it by Tab and the arrow keys.");
  #due = null;
  #job = null;

  /** Shows what is pointed at; of a job that waits also why, a moment later. */
  show(text, job) {
    if (this.#job === job && this.element.textContent.startsWith(text)) return;
    this.#job = job;
    clearTimeout(this.#due);
    this.element.textContent = `${text}.`;
    if (job === undefined) return;
    this.#due = setTimeout(async () => {
      try {
        const page = await get(`jobs/${job}`);
        if (this.#job === job) this.element.textContent = [`${text}.`, ...page.explanation.map(words)].join(" ");
      } catch {
        // What is known already stays.
      }
    }, PAUSE_MS);
  }

  close() {
    clearTimeout(this.#due);
    this.#job = null;
  }
}
