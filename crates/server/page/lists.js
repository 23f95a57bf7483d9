// Accounts, projects, reservations, events and what else there is, as tables of what the server answers.

import { forms } from "./administer.js";
import { get } from "./api.js";
import { save } from "./csv.js";
import { h, table } from "./dom.js";
import { time } from "./format.js";
import { queue } from "./queue_store.js";
import { replaceAddress } from "./router.js";

const LISTS = ["events", "audit", "reservations", "accounts", "shares", "projects", "fleets", "backends", "services", "volumes", "licenses", "secrets", "tokens", "agents"];
/** Lists of one project, which the address names. */
const OF_PROJECT = new Set(["secrets", "volumes"]);
/** Rows of one table; a search finds the others. */
const ROWS_MAX = 500;
/** Whole numbers from 2001 to 2286 in milliseconds are times; amounts of memory may be larger, and shares are fractions. */
const [TIME_MIN, TIME_END] = [1e12, 1e13];
const isTime = (value) => Number.isInteger(value) && value >= TIME_MIN && value < TIME_END;

export function listsView(route, profile) {
  const name = LISTS.includes(route.parts[0]) ? route.parts[0] : LISTS[0];
  const title = name[0].toUpperCase() + name.slice(1);
  const content = h("div");
  const wanted = { q: route.query.get("q") ?? "", project: route.query.get("project") ?? "" };
  const apply = () => replaceAddress(`lists/${name}`, wanted);
  const search = h("input", { type: "search", id: "list-search", value: wanted.q, oninput: () => {
    wanted.q = search.value;
    apply();
    draw();
  } });
  const project = h("input", { type: "text", id: "list-project", value: wanted.project, placeholder: "main", onchange: () => {
    wanted.project = project.value.trim();
    apply();
    load().catch((error) => content.replaceChildren(h("p", { class: "error" }, error.message)));
  } });
  let answer = null;
  let tables = [];

  const draw = () => {
    const word = wanted.q.toLowerCase();
    content.replaceChildren(...tables.map(({ title, heads, rows }) => {
      const fitting = rows.filter((cells) => !word || cells.some((cell) => cell.toLowerCase().includes(word)));
      return h("section", {},
        h("p", { class: "buttons" }, `${title}: ${fitting.length}${fitting.length > ROWS_MAX ? `, the first ${ROWS_MAX} are shown` : ""} `,
          h("button", { type: "button", onclick: () => save(`${title}.csv`, [heads, ...fitting]) }, `${title} as CSV`)),
        table(title, heads, fitting.slice(0, ROWS_MAX)));
    }));
    if (tables.length === 0) content.replaceChildren(h("p", {}, "There are none."));
  };
  const load = async () => {
    if (name === "services") {
      await queue.refresh();
      tables = servicesOf([...queue.rows.values()]);
    } else {
      answer = await get(`lists/${name}${OF_PROJECT.has(name) && wanted.project ? `?project=${encodeURIComponent(wanted.project)}` : ""}`);
      tables = tablesOf(name, answer);
    }
    draw();
  };

  return {
    title,
    element: h("section", {}, h("h1", {}, title),
      h("nav", { "aria-label": "Lists", class: "tabs" }, LISTS.map((one) => h("a", { href: `#/lists/${one}`, "aria-current": one === name && "page" }, one))),
      h("p", { class: "buttons" }, h("label", { for: "list-search" }, "Search "), search,
        OF_PROJECT.has(name) && [h("label", { for: "list-project" }, "Project "), project]),
      content, forms(name, profile, load, () => answer)),
    ready: load(),
    update: (what) => (what.lists || (name === "services" && what.jobs)) && load().catch(() => {}),
    close: () => {},
  };
}

/** Services by project and name, with their replicas and where requests go. */
function servicesOf(jobs) {
  const services = new Map();
  for (const job of jobs.filter((one) => one.service)) {
    const key = `${job.account}/${job.name}`;
    const known = services.get(key) ?? { service: job.name, project: job.account, user: job.user, running: 0, waiting: 0, requests: `/proxy/services/${key}/` };
    known[job.waiting ? "waiting" : "running"] += 1;
    services.set(key, known);
  }
  return services.size ? [asTable("services", [...services.values()])] : [];
}

/** An answer holds one list, or an object of several. */
function tablesOf(name, answer) {
  const content = Object.values(answer)[0];
  const lists = Array.isArray(content) ? [[name, content]] : Object.entries({ ...content, roles: Object.entries(content?.roles ?? {}).map(([user, role]) => ({ user, role })) });
  const named = (rows) => rows.map((row) => (typeof row === "string" ? { name: row } : row));
  return lists.filter(([, rows]) => Array.isArray(rows) && rows.length > 0).map(([title, rows]) => [title, named(rows)])
    .map(([title, rows]) => asTable(title, name === "events" || name === "audit" ? [...rows].reverse() : rows));
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
