// A field for a text, with the numbers of its lines beside it; and lines about the text, which lead to their place in it.

import { h } from "./dom.js";

/** `script:2:9: …`, as the server names a place: the line, and the column where it is known. */
const PLACE = /^(?:script|configuration):(\d+)(?::(\d+))?: /;

export class NumberedText {
  #numbers = h("div", { class: "numbers", "aria-hidden": "true" });
  #count = 0;
  field;
  element;

  /** `properties` of the field; `changed` is called when something was typed. */
  constructor(properties, value, changed) {
    this.field = h("textarea", { ...properties, wrap: "off", onscroll: () => this.#follow(), oninput: () => {
      this.#number();
      changed();
    } });
    this.field.value = value;
    this.element = h("div", { class: "numbered-text" }, this.#numbers, this.field);
    this.#number();
  }

  #follow() {
    this.#numbers.scrollTop = this.field.scrollTop;
  }

  #number() {
    const count = this.field.value.split("\n").length;
    if (count === this.#count) return;
    this.#count = count;
    this.#numbers.textContent = Array.from({ length: count }, (_, index) => index + 1).join("\n");
    this.#follow();
  }

  /** A line about the text in parts: its place selects the line that is meant. */
  said(line) {
    const [prefix, row, column] = PLACE.exec(line) ?? [];
    if (!prefix) return [line];
    const words = `Line ${row}${column ? `, column ${column}` : ""}`;
    return [h("button", { type: "button", class: "place", onclick: () => this.#select(Number(row)) }, words), ` ${line.slice(prefix.length)}`];
  }

  #select(row) {
    const lines = this.field.value.split("\n");
    const start = lines.slice(0, row - 1).reduce((sum, line) => sum + line.length + 1, 0);
    this.field.focus();
    this.field.setSelectionRange(start, start + (lines[row - 1] ?? "").length);
  }
}
