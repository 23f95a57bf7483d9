// Lists as tables: what the server answers, in words. A table is `{title, heads, rows, links}`, where rows are lists of texts, so that
// they can be searched and saved, and `links` are the columns whose texts are addresses.

import { heading } from "./format.js";
import { COLUMNS, TITLES } from "./list_columns.js";

/** Lists that say what happened: the newest first. */
const HISTORIES = new Set(["events", "audit"]);

/** The tables of an answer, which holds one list or an object of several. */
export function tablesOf(name, answer) {
  const content = Object.values(answer)[0];
  const lists = Array.isArray(content) ? [[name, content]] : Object.entries(listsOf(name, content));
  return lists.filter(([title, rows]) => Object.hasOwn(COLUMNS, title) && Array.isArray(rows) && rows.length > 0)
    .map(([title, rows]) => tableOf(title, HISTORIES.has(name) ? rows.toReversed() : rows));
}

/** What an object has by names is a list too. */
function listsOf(name, content) {
  const roles = Object.entries(content?.roles ?? {}).map(([user, role]) => ({ user, role }));
  const usage = name === "shares" ? Object.entries(content.qos ?? {}).map(([qos, spent]) => ({ name: qos, ...spent })) : [];
  return { ...content, roles, qos_usage: usage };
}

/** The nodes, of the answer that the map is drawn from. */
export const tablesOfNodes = (answer) => (answer.nodes.length ? [tableOf("nodes", answer.nodes)] : []);

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
function tableOf(name, objects) {
  const rows = objects.map((one) => (typeof one === "string" ? { name: one } : one));
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  const columns = COLUMNS[name].map(([head, value]) => ({ head, texts: rows.map((row) => text(value(row))) }));
  const said = columns.filter(({ texts }) => texts.some((one) => one !== ""));
  return { title: TITLES[name] ?? heading(name), heads: said.map(({ head }) => head), rows: rows.map((_, index) => said.map(({ texts }) => texts[index])), links: [] };
}
