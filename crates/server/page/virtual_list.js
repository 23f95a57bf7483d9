// A list of any length of which only the rows on the screen are elements. A row keeps its elements while it is there, whatever comes
// before it: what somebody points at stays what it is.

import { h } from "./dom.js";

const ROW_PX = 32;
/** Rows above and below the screen that are there already when it is scrolled. */
const AHEAD = 12;

/** `columns`: `{title, key, rank, text(row), address?(row)}`; `open(row)` is called for the row that Enter is pressed on. Rows have an `id`. */
export class VirtualList {
  #rows = [];
  #columns;
  #open;
  /** The id of the row that the keyboard is at, and where it was last. */
  #active = null;
  #at = -1;
  /** The rows that have elements, by their ids. */
  #drawn = new Map();
  #isHeld = false;
  /** Rows to show once nothing is held. */
  #later = null;
  #body = h("div", { class: "list-body", role: "presentation" });
  #viewport;

  constructor(label, columns, heads, open) {
    this.#columns = columns;
    this.#open = open;
    this.#viewport = h("div", {
      class: "list", role: "grid", tabindex: 0, "aria-label": label, "aria-colcount": columns.length,
      onscroll: () => requestAnimationFrame(() => this.#draw()),
      onkeydown: (event) => this.#key(event),
      onpointerdown: (event) => event.target.closest(".list-row") && this.#hold(),
      onmouseover: (event) => tellWhole(event.target.closest("[role=gridcell]")),
    }, h("div", { class: "list-head", role: "row", "aria-rowindex": 1 }, heads), this.#body);
    new ResizeObserver(() => this.#draw()).observe(this.#viewport);
  }

  get element() {
    return this.#viewport;
  }

  /** Where it is scrolled to. */
  get place() {
    return this.#viewport.scrollTop;
  }

  set place(top) {
    this.#viewport.scrollTop = top;
    this.#draw();
  }

  show(rows) {
    if (this.#isHeld) {
      this.#later = rows;
      return;
    }
    this.#rows = rows;
    this.#find();
    this.#body.style.height = `${rows.length * ROW_PX}px`;
    this.#viewport.setAttribute("aria-rowcount", rows.length + 1);
    this.#draw();
  }

  /** While a button is down nothing moves: a click is on the row that it began on. Where a menu opens, its release may never be told. */
  #hold() {
    this.#isHeld = true;
    const ends = ["pointerup", "pointercancel", "contextmenu", "blur"];
    const end = () => {
      ends.forEach((name) => window.removeEventListener(name, end));
      // The click comes after the button.
      setTimeout(() => {
        this.#isHeld = false;
        const rows = this.#later;
        this.#later = null;
        if (rows) this.show(rows);
      });
    };
    ends.forEach((name) => window.addEventListener(name, end));
  }

  /** Looks where the keyboard's row is now. Where it is no more, the one in its place is. */
  #find() {
    if (this.#active === null) return;
    const found = this.#rows.findIndex((row) => row.id === this.#active);
    this.#goTo(found >= 0 ? found : Math.min(this.#at, this.#rows.length - 1));
  }

  #goTo(index) {
    this.#at = index;
    this.#active = this.#rows[index]?.id ?? null;
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.#viewport.scrollTop / ROW_PX) - AHEAD);
    const count = Math.ceil(this.#viewport.clientHeight / ROW_PX) + 2 * AHEAD;
    const former = this.#drawn;
    this.#drawn = new Map();
    for (const [offset, row] of this.#rows.slice(first, first + count).entries()) {
      const drawn = former.get(row.id) ?? this.#make();
      former.delete(row.id);
      this.#drawn.set(row.id, drawn);
      this.#fill(drawn, row, first + offset);
    }
    for (const { element } of former.values()) element.remove();
    this.#arrange();
    // The keyboard's row has an element only where it is on the screen.
    if (this.#drawn.has(this.#active)) this.#viewport.setAttribute("aria-activedescendant", `row-${this.#active}`);
    else this.#viewport.removeAttribute("aria-activedescendant");
  }

  /** The elements in the order of the rows, for those who read them; what is in its place is not moved. */
  #arrange() {
    let next = this.#body.firstChild;
    for (const { element } of this.#drawn.values()) {
      if (element === next) next = next.nextSibling;
      else this.#body.insertBefore(element, next);
    }
  }

  #make() {
    const cells = this.#columns.map((column) => {
      const inner = column.address ? h("a", { tabindex: -1 }) : h("div", { role: "gridcell", class: `rank-${column.rank}` });
      return { inner, cell: column.address ? h("div", { role: "gridcell", class: `rank-${column.rank}` }, inner) : inner };
    });
    return { element: h("div", { role: "row" }, cells.map(({ cell }) => cell)), inners: cells.map(({ inner }) => inner), said: [], look: "" };
  }

  /** Writes what is not there already. */
  #fill(drawn, row, index) {
    const { element, inners, said } = drawn;
    const isActive = row.id === this.#active;
    const look = `${index} ${isActive} ${row.mine}`;
    if (drawn.look !== look) {
      element.className = `list-row${isActive ? " active" : ""}${row.mine ? " mine" : ""}`;
      element.id = `row-${row.id}`;
      element.setAttribute("aria-rowindex", index + 2);
      element.setAttribute("aria-selected", String(isActive));
      element.style.top = `${index * ROW_PX}px`;
      drawn.look = look;
    }
    this.#columns.forEach((column, at) => {
      const text = String(column.text(row));
      if (said[at] === text) return;
      said[at] = text;
      inners[at].textContent = text;
      if (column.address) inners[at].href = column.address(row);
    });
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.#viewport.clientHeight / ROW_PX) - 1);
    const last = this.#rows.length - 1;
    const moves = {
      ArrowDown: this.#at + 1, ArrowUp: this.#at - 1, PageDown: this.#at + page,
      PageUp: this.#at - page, Home: 0, End: last,
    };
    if (event.key === "Enter" && event.target === this.#viewport && this.#rows[this.#at]) {
      this.#open(this.#rows[this.#at]);
    } else if (event.key in moves) {
      event.preventDefault();
      this.#goTo(Math.max(0, Math.min(last, moves[event.key])));
      const top = this.#at * ROW_PX;
      const height = this.#viewport.clientHeight - 2 * ROW_PX;
      if (top < this.#viewport.scrollTop) this.#viewport.scrollTop = top;
      else if (top > this.#viewport.scrollTop + height) this.#viewport.scrollTop = top - height;
      this.#draw();
    }
  }
}

/** A cell that is cut says all of it when somebody points at it. */
function tellWhole(cell) {
  if (!cell) return;
  if (cell.scrollWidth > cell.clientWidth) cell.title = cell.textContent;
  else cell.removeAttribute("title");
}
