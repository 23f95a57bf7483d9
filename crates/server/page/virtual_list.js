// A list of any length of which only the rows on the screen are elements.

import { h } from "./dom.js";

const ROW_PX = 32;
/** Rows above and below the screen that are there already when it is scrolled. */
const AHEAD = 12;

/** `columns`: `{title, key, rank, cell(row)}`; `open(row)` is called for the row that Enter is pressed on. */
export class VirtualList {
  #rows = [];
  #columns;
  #open;
  #active = -1;
  #body = h("div", { class: "list-body", role: "presentation" });
  #viewport;

  constructor(label, columns, heads, open) {
    this.#columns = columns;
    this.#open = open;
    this.#viewport = h("div", {
      class: "list", role: "grid", tabindex: 0, "aria-label": label, "aria-colcount": columns.length,
      onscroll: () => requestAnimationFrame(() => this.#draw()),
      onkeydown: (event) => this.#key(event),
    }, h("div", { class: "list-head", role: "row", "aria-rowindex": 1 }, heads), this.#body);
    new ResizeObserver(() => this.#draw()).observe(this.#viewport);
  }

  get element() {
    return this.#viewport;
  }

  show(rows) {
    this.#rows = rows;
    this.#active = Math.min(this.#active, rows.length - 1);
    this.#body.style.height = `${rows.length * ROW_PX}px`;
    this.#viewport.setAttribute("aria-rowcount", rows.length + 1);
    this.#draw();
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.#viewport.scrollTop / ROW_PX) - AHEAD);
    const count = Math.ceil(this.#viewport.clientHeight / ROW_PX) + 2 * AHEAD;
    const shown = this.#rows.slice(first, first + count);
    this.#body.replaceChildren(...shown.map((row, index) => this.#row(row, first + index)));
    if (this.#active >= 0) this.#viewport.setAttribute("aria-activedescendant", `row-${this.#active}`);
  }

  #row(row, index) {
    const element = h("div", {
      class: `list-row${index === this.#active ? " active" : ""}${row.mine ? " mine" : ""}`,
      role: "row", id: `row-${index}`, "aria-rowindex": index + 2, "aria-selected": index === this.#active ? "true" : "false",
    }, this.#columns.map((column) => h("div", { role: "gridcell", class: `rank-${column.rank}` }, column.cell(row))));
    element.style.top = `${index * ROW_PX}px`;
    return element;
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.#viewport.clientHeight / ROW_PX) - 1);
    const last = this.#rows.length - 1;
    const moves = {
      ArrowDown: this.#active + 1, ArrowUp: this.#active - 1, PageDown: this.#active + page,
      PageUp: this.#active - page, Home: 0, End: last,
    };
    if (event.key === "Enter" && event.target === this.#viewport && this.#rows[this.#active]) {
      this.#open(this.#rows[this.#active]);
    } else if (event.key in moves) {
      event.preventDefault();
      this.#active = Math.max(0, Math.min(last, moves[event.key]));
      const top = this.#active * ROW_PX;
      const height = this.#viewport.clientHeight - 2 * ROW_PX;
      if (top < this.#viewport.scrollTop) this.#viewport.scrollTop = top;
      else if (top > this.#viewport.scrollTop + height) this.#viewport.scrollTop = top - height;
      this.#draw();
    }
  }
}
