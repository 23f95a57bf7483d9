// Accounts, projects, reservations, events and what else there is, as tables of what the server answers.

import { forms } from "./administer.js";
import { get } from "./api.js";
import { save } from "./csv.js";
import { h, table } from "./dom.js";
import { time } from "./format.js";

const LISTS = ["events", "reservations", "accounts", "shares", "projects", "fleets", "licenses", "secrets", "tokens", "agents"];
/** Rows of one table; a search finds the others. */
const ROWS_MAX = 500;
/** Whole numbers from 2001 to 2286 in milliseconds are times; amounts of memory may be larger, and shares are fractions. */
const [TIME_MIN, TIME_END] = [1e12, 1e13];
const isTime = (value) => Number.isInteger(value) && value >= TIME_MIN && value < TIME_END;

export function listsView(route) {
  const name = LISTS.includes(route.parts[0]) ? route.parts[0] : LISTS[0];
  const content = h("div");
  const search = h("input", { type: "search", id: "list-search", oninput: () => draw() });
  let tables = [];

  const draw = () => {
    const word = search.value.toLowerCase();
    content.replaceChildren(...tables.map(({ title, heads, rows }) => {
      const fitting = rows.filter((cells) => !word || cells.some((cell) => cell.toLowerCase().includes(word)));
      return h("section", {},
        h("p", { class: "buttons" }, `${title}: ${fitting.length} `,
          h("button", { type: "button", onclick: () => save(`${title}.csv`, [heads, ...fitting]) }, "CSV")),
        table(title, heads, fitting.slice(0, ROWS_MAX)));
    }));
    if (tables.length === 0) content.replaceChildren(h("p", {}, "There are none."));
  };
  const load = async () => {
    tables = tablesOf(name, await get(`lists/${name}`));
    draw();
  };

  return {
    title: name[0].toUpperCase() + name.slice(1),
    element: h("section", {}, h("h1", {}, name[0].toUpperCase() + name.slice(1)),
      h("nav", { "aria-label": "Lists", class: "tabs" }, LISTS.map((one) => h("a", { href: `#/lists/${one}`, "aria-current": one === name && "page" }, one))),
      h("p", {}, h("label", { for: "list-search" }, "Search "), search), content, forms(name, load)),
    ready: load(),
    update: (what) => what.lists && load().catch(() => {}),
    close: () => {},
  };
}

/** An answer holds one list, or an object of several. */
function tablesOf(name, answer) {
  const content = Object.values(answer)[0];
  const lists = Array.isArray(content) ? [[name, content]] : Object.entries(content ?? {});
  const named = (rows) => rows.map((row) => (typeof row === "string" ? { name: row } : row));
  return lists.filter(([, rows]) => Array.isArray(rows) && rows.length > 0).map(([title, rows]) => [title, named(rows)])
    .map(([title, rows]) => asTable(title, title === "activities" || name === "events" ? [...rows].reverse() : rows));
}

function asTable(title, objects) {
  const flat = objects.map(flatten);
  const heads = [...new Set(flat.flatMap((object) => Object.keys(object)))];
  const rows = flat.map((object) => heads.map((head) => said(object[head])));
  return { title, heads, rows };
}

/** An object within a row has its values in the row. */
function flatten(object) {
  return Object.fromEntries(Object.entries(object).flatMap(([key, value]) => {
    const isPlain = value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 3;
    return isPlain ? Object.entries(flatten(value)) : [[key, value]];
  }));
}

function said(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return isTime(value) ? time(value) : String(value);
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
