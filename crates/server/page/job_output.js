// The end of a job's output, with a search in its lines.

import { log } from "./api.js";
import { h } from "./dom.js";

/** The part that is shown at first, and the most. */
const [BYTES, BYTES_MAX] = [65_536, 4_194_304];
/** Lines of a search that are shown, the last ones. */
const FOUND_MAX = 2_000;

export class Output {
  /** It was loaded after the job's end: nothing is added to it. */
  isWhole = false;
  #id;
  #bytes = BYTES;
  #text = "";
  #shown = null;
  #pre = h("pre", { class: "log", tabindex: 0, role: "region", "aria-label": "The end of the output" });
  #search = h("input", { type: "search", id: "log-search", oninput: () => this.#draw() });
  #count = h("span", { role: "status" });
  #more = h("button", { type: "button", hidden: true, onclick: () => this.#loadMore() }, "Show more");
  element = h("section", { hidden: true }, h("h2", {}, "Output"),
    h("p", { class: "buttons" }, h("label", { for: "log-search" }, "Lines with "), this.#search, this.#more, this.#count), this.#pre);

  constructor(id) {
    this.#id = id;
  }

  async load(hasEnded) {
    try {
      this.#text = await log(this.#id, this.#bytes);
      this.isWhole = hasEnded;
    } catch (error) {
      this.#text = error.message;
    }
    // As much as was asked for came: there may be more before it.
    this.#more.hidden = this.#text.length < this.#bytes / 2 || this.#bytes >= BYTES_MAX;
    this.#draw();
  }

  #loadMore() {
    this.#bytes *= 8;
    return this.load(this.isWhole);
  }

  #draw() {
    const word = this.#search.value.toLowerCase();
    const shown = `${word}\n${this.#text}`;
    if (this.#shown === shown) return;
    this.#shown = shown;
    const isAtEnd = this.#pre.scrollTop + this.#pre.clientHeight >= this.#pre.scrollHeight - 8;
    if (word) this.#drawFound(word);
    else {
      this.#count.textContent = "";
      this.#pre.textContent = this.#text;
    }
    if (isAtEnd) this.#pre.scrollTop = this.#pre.scrollHeight;
  }

  #drawFound(word) {
    const found = this.#text.split("\n").filter((line) => line.toLowerCase().includes(word));
    this.#count.textContent = `${found.length} lines${found.length > FOUND_MAX ? `, the last ${FOUND_MAX} are shown` : ""}`;
    this.#pre.replaceChildren(...found.slice(-FOUND_MAX).flatMap((line) => [...marked(line, word), "\n"]));
  }
}

/** The line in parts, with what was looked for marked. */
function marked(line, word) {
  const parts = [];
  const small = line.toLowerCase();
  // Letters that are longer in small would shift what is marked.
  if (small.length !== line.length) return [line];
  let from = 0;
  for (let at = small.indexOf(word); at >= 0; at = small.indexOf(word, from)) {
    parts.push(line.slice(from, at), h("mark", {}, line.slice(at, at + word.length)));
    from = at + word.length;
  }
  return [...parts, line.slice(from)];
}
