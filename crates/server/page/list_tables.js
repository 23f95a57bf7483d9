// Lists as tables: what the server answers, in words. A table is `{title, heads, rows, links}`, where rows are lists of texts, so that
// they can be searched and saved, and `links` are the columns whose texts are addresses.

import { heading, time } from "./format.js";

/** Whole numbers from 2001 to 2286 in milliseconds are times; amounts of memory may be larger, and shares are fractions. */
const [TIME_MIN, TIME_END] = [1e12, 1e13];
const isTime = (value) => Number.isInteger(value) && value >= TIME_MIN && value < TIME_END;
const dollars = (parts, digits) => (value) => `$${(value / parts).toFixed(digits)}`;
/** Fields whose numbers are parts of something: prices are ten-thousandths of a dollar for an hour, costs millionths of one. */
const UNITS = {
  price: dollars(1e4, 4), price_hour: dollars(1e4, 4),
  cost: dollars(1e6, 2), spent: dollars(1e6, 2), month: dollars(1e6, 2), budget: dollars(1e6, 2),
  usage_factor: (value) => String(value / 1e6),
};
/** Lists that say what happened: the newest first. */
const HISTORIES = new Set(["events", "audit"]);

/** The tables of an answer, which holds one list or an object of several. */
export function tablesOf(name, answer) {
  const content = Object.values(answer)[0];
  const lists = Array.isArray(content) ? [[name, content]] : Object.entries({ ...content, roles: rolesOf(content) });
  const named = (rows) => rows.map((row) => (typeof row === "string" ? { name: row } : row));
  return lists.filter(([, rows]) => Array.isArray(rows) && rows.length > 0)
    .map(([title, rows]) => tableOf(title, named(HISTORIES.has(name) ? rows.toReversed() : rows)));
}

const rolesOf = (content) => Object.entries(content?.roles ?? {}).map(([user, role]) => ({ user, role }));

/** Services by where requests to them go, with their replicas. */
export function servicesOf(jobs) {
  const services = new Map();
  for (const job of jobs.filter((one) => one.service)) {
    const known = services.get(job.service) ?? { service: job.name, user: job.user, account: job.account, running: 0, waiting: 0, requests: job.service };
    known[job.waiting ? "waiting" : "running"] += 1;
    services.set(job.service, known);
  }
  return services.size ? [{ ...tableOf("services", [...services.values()]), links: ["Requests"] }] : [];
}

/** Columns in which nothing is said are left out. */
function tableOf(title, objects) {
  const flat = objects.map(flatten);
  const keys = [...new Set(flat.flatMap((object) => Object.keys(object)))];
  const said = keys.filter((key) => flat.some((object) => words(object[key], key) !== ""));
  const rows = flat.map((object) => said.map((key) => words(object[key], key)));
  return { title: heading(title), heads: said.map(heading), rows, links: [] };
}

/** An object within a row has its values in the row, unless it is short or has a text for each name, as members have roles. */
function flatten(object) {
  return Object.fromEntries(Object.entries(object).flatMap(([key, value]) => (isLong(value) ? Object.entries(flatten(value)) : [[key, value]])));
}

function isLong(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
  const values = Object.values(value);
  return values.length > 3 && values.some((one) => typeof one !== "string");
}

/** `cpu=4, mem=1024` for an object; nothing for an empty one. */
function words(value, key) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" && Object.hasOwn(UNITS, key)) return UNITS[key](value);
  if (typeof value === "number") return isTime(value) ? time(value) : String(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => words(one, key)).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name}=${words(one, name)}`).join(", ");
  return String(value);
}
