// An array of jobs: how many of its tasks are in each state, and each of those that have begun.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { time } from "./format.js";
import { jobAddress } from "./router.js";

/** All records of an array are looked through: it follows the queue no more often than this. */
const INTERVAL_MS = 5_000;

export function arrayView(route) {
  const name = route.parts[0] ?? "";
  const content = h("div", {}, h("p", { role: "status" }, "Loading…"));
  let due = null;

  const load = async () => {
    content.replaceChildren(...parts(await get(`jobs/${encodeURIComponent(name)}/tasks`)));
  };
  const loadFirst = () => load().catch((error) => {
    content.replaceChildren();
    throw error;
  });
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      load().catch(() => {});
    }, INTERVAL_MS);
  };

  return {
    title: `Array ${name}`,
    element: h("section", {}, h("h1", {}, `Array ${name}`), content),
    ready: loadFirst(),
    update: (what) => what.jobs && later(),
    close: () => clearTimeout(due),
  };
}

function parts({ array, states, cut, tasks, waiting }) {
  const counts = states.map(([state, count]) => h("div", {}, h("dt", {}, state.toLowerCase()), h("dd", {}, count)));
  const listed = cut ? `the last ${tasks.length} are listed, and of those that have ended the last alone are counted` : `${tasks.length} are listed`;
  const rows = tasks.map((one) => [
    h("a", { href: jobAddress(one.shown) }, one.shown), one.state.toLowerCase(), time(one.start), time(one.end), one.nodes || "–",
    one.ended ? `${one.exit_code}:${one.exit_signal}` : "–",
  ]);
  return [
    h("dl", { class: "totals" }, counts),
    waiting && h("p", {}, "Waiting together: ", h("a", { href: jobAddress(array) }, `${array}_[${waiting}]`)),
    rows.length > 0 && table(`Tasks that have begun: ${listed}`, ["Task", "State", "Start", "End", "Nodes", "Exit code"], rows),
  ].filter(Boolean);
}
