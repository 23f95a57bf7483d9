// The end of a job's output, with a search in its lines.

import { log } from "./api.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";
import { goOn, readable } from "./log_text.js";

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
  /** `{asked, size, isCut}`: how much was asked for and came, and whether there is more before it; nothing of an output that could not
   * be read. */
  #loaded = null;
  #shown = null;
  /** Says the output while nothing is looked for. */
  #whole = new Text();
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
      const asked = this.#bytes;
      const { text, size } = await log(this.#id, asked);
      this.#loaded = { asked, size, isCut: size >= asked };
      this.#text = readable(text);
      this.isWhole = hasEnded;
    } catch (error) {
      this.#loaded = null;
      this.#text = error.message;
    }
    this.#draw();
  }

  /** A search goes through all that may be shown at once. */
  #loadMore() {
    this.#bytes = this.#search.value ? BYTES_MAX : Math.min(this.#bytes * 8, BYTES_MAX);
    return this.load(this.isWhole);
  }

  #drawMore() {
    this.#more.hidden = !this.#loaded?.isCut || this.#bytes >= BYTES_MAX;
    this.#more.textContent = this.#search.value ? `Search the last ${bytes(BYTES_MAX)}` : "Show more";
  }

  /** What a search has gone through. */
  #searched() {
    const { asked, size, isCut } = this.#loaded;
    if (!isCut) return "the whole output";
    const last = `the last ${bytes(size)}`;
    return asked < BYTES_MAX ? last : `${last}, the most that is searched here: \`sluice logs ${this.#id}\` has all`;
  }

  #draw() {
    this.#drawMore();
    const word = this.#search.value.toLowerCase();
    const shown = `${word}\n${this.#loaded?.isCut} ${this.#loaded?.asked}\n${this.#text}`;
    if (this.#shown === shown) return;
    this.#shown = shown;
    const isAtEnd = this.#pre.scrollTop + this.#pre.clientHeight >= this.#pre.scrollHeight - 8;
    if (word) this.#drawFound(word);
    else {
      this.#count.textContent = "";
      // Whoever reads further up keeps what he reads.
      const isKept = this.#whole.length < BYTES_MAX && (!isAtEnd || !document.getSelection().isCollapsed);
      goOn(this.#whole, this.#text, isKept);
      if (this.#pre.firstChild !== this.#whole) this.#pre.replaceChildren(this.#whole);
    }
    if (isAtEnd) this.#pre.scrollTop = this.#pre.scrollHeight;
  }

  #drawFound(word) {
    const found = this.#text.split("\n").filter((line) => line.toLowerCase().includes(word));
    const shown = found.length > FOUND_MAX ? `; the last ${FOUND_MAX} are shown` : "";
    this.#count.textContent = this.#loaded ? `${found.length} ${found.length === 1 ? "line" : "lines"} of ${this.#searched()}${shown}` : "";
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
