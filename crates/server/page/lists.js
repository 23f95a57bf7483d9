// Accounts, projects, reservations, events and what else there is, as tables of what the server answers.

import { forms } from "./administer.js";
import { get } from "./api.js";
import { save } from "./csv.js";
import { h, table } from "./dom.js";
import { heading } from "./format.js";
import { servicesOf, tablesOf, tablesOfNodes } from "./list_tables.js";
import { queue } from "./queue_store.js";
import { may } from "./rights.js";
import { replaceAddress } from "./router.js";
import { unknownView } from "./unknown_view.js";

const LISTS = ["events", "audit", "nodes", "partitions", "reservations", "accounts", "shares", "projects", "fleets", "backends", "services", "volumes", "licenses", "secrets", "tokens", "agents"];
/** Lists that change with the nodes. */
const OF_NODES = new Set(["nodes", "partitions"]);
/** Lists of one project, which the address names. */
const OF_PROJECT = new Set(["secrets", "volumes"]);
/** Whose lists are not everybody's, as `rights.js` has it. */
const BY = { backends: "operators", agents: "operators", secrets: "secretManagers" };
/** Rows of one table; a search finds the others. */
const ROWS_MAX = 500;

export function listsView(route, profile) {
  const name = route.parts[0] || LISTS[0];
  const shown = LISTS.filter((one) => one === name || may(profile, BY[one]));
  const tabs = h("nav", { "aria-label": "Lists", class: "tabs" }, shown.map((one) => h("a", { href: `#/lists/${one}`, "aria-current": one === name && "page" }, heading(one))));
  if (!LISTS.includes(name)) {
    const unknown = unknownView("list", name);
    unknown.element.prepend(tabs);
    return unknown;
  }
  const title = heading(name);
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

  const denied = () => {
    const who = BY[name] === "operators" ? "Operators and administrators of the cluster" : OF_PROJECT.has(name) ? `Managers of the project ${wanted.project || "main"}, and administrators,` : "Administrators";
    return `${who} see this list; you are signed in as ${profile.user}, with the role ${profile.role}.`;
  };
  const draw = () => {
    const word = wanted.q.toLowerCase();
    content.replaceChildren(...tables.map((one) => tableElement(one, word)));
    if (tables.length === 0) content.replaceChildren(h("p", {}, "There are none."));
  };
  const load = async () => {
    if (name === "services") {
      await queue.refresh();
      answer = { jobs: [...queue.rows.values()] };
      tables = servicesOf(answer.jobs);
    } else {
      try {
        await loadList();
      } catch (error) {
        if (error.status !== 403) throw error;
        content.replaceChildren(h("p", { class: "hint" }, denied()));
        return;
      }
    }
    draw();
  };
  const loadList = async () => {
    answer = await get(name === "nodes" ? name : `lists/${name}${OF_PROJECT.has(name) && wanted.project ? `?project=${encodeURIComponent(wanted.project)}` : ""}`);
    tables = name === "nodes" ? tablesOfNodes(answer) : tablesOf(name, answer);
    // As `sluice fleet` has it: a partition is a fleet too.
    if (name === "fleets") tables.push(...tablesOf("partitions", await get("lists/partitions")));
  };

  return {
    title,
    element: h("section", {}, h("h1", {}, title), tabs,
      h("p", { class: "buttons" }, h("label", { for: "list-search" }, "Search "), search,
        OF_PROJECT.has(name) && [h("label", { for: "list-project" }, "Project "), project]),
      content, forms(name, profile, load, () => answer)),
    ready: load(),
    update: (what) => (what.lists || (name === "services" && what.jobs) || (OF_NODES.has(name) && what.nodes)) && load().catch(() => {}),
    close: () => {},
  };
}

/** A table with the rows that have this word in them. */
function tableElement({ title, heads, rows, links }, word) {
  const fitting = rows.filter((cells) => !word || cells.some((cell) => cell.toLowerCase().includes(word)));
  const cells = fitting.slice(0, ROWS_MAX).map((row) => row.map((text, index) => (links.includes(heads[index]) ? h("a", { href: text }, text) : text)));
  const shown = fitting.length > ROWS_MAX ? `, the first ${ROWS_MAX} are shown` : "";
  return h("section", {}, table(`${title}: ${fitting.length}${shown}`, heads, cells),
    h("p", {}, h("button", { type: "button", onclick: () => save(`${title}.csv`, [heads, ...fitting]) }, `${title} as CSV`)));
}
