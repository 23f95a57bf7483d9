// What was used in a period, by account and user, and how much of the cluster that was, month by month.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, table } from "./dom.js";
import { now } from "./format.js";
import { save } from "./csv.js";
import { replaceAddress } from "./router.js";

const DAY = 86_400_000;
const PERIODS = { "7 days": 7, "30 days": 30, "90 days": 90, "1 year": 365 };
const MONTHS = 12;

export function usageView(route) {
  const asked = Number(route.query.get("days"));
  let days = Object.values(PERIODS).includes(asked) ? asked : 30;
  const content = h("div");
  const months = h("div", { class: "charts", role: "status" });

  const load = async () => {
    const until = Math.round(now());
    const answer = await get(`usage?from=${until - days * DAY}&until=${until}`);
    content.replaceChildren(...parts(answer));
  };
  const select = h("select", { id: "days", onchange: () => {
    days = Number(select.value);
    replaceAddress("usage", { days });
    load().catch((error) => content.replaceChildren(h("p", { class: "error" }, error.message)));
  } }, Object.entries(PERIODS).map(([name, value]) => h("option", { value, selected: value === days }, name)));

  return {
    title: "Usage",
    element: h("section", {}, h("h1", {}, "Usage"),
      h("p", {}, h("label", { for: "days" }, "The last "), select), content,
      h("p", {}, h("button", { type: "button", onclick: () => loadMonths(months) }, "Utilisation by month")), months),
    ready: load(),
    update: () => {},
    close: () => {},
  };
}

const rounded = (hours) => hours.toFixed(1);

function parts(answer) {
  const rows = answer.rows.toSorted((one, other) => other.used.gpu - one.used.gpu || other.used.cpu - one.used.cpu);
  const top = Math.max(...rows.map((row) => row.used.gpu || row.used.cpu), 1);
  const heads = ["Account", "User", "Jobs", "CPU hours", "GPU hours"];
  const texts = rows.map((row) => [row.account, row.user, String(row.jobs), rounded(row.used.cpu), rounded(row.used.gpu)]);
  const cells = texts.map((cell, index) => {
    const value = rows[index].used.gpu || rows[index].used.cpu;
    return [...cell, h("meter", { min: 0, max: top, value, "aria-label": `${rounded(value)} hours` })];
  });
  return [
    answer.cluster && h("p", {}, `Of the cluster: ${share(answer.cluster, "cpu")} of the CPUs${answer.cluster.reported.gpu ? `, ${share(answer.cluster, "gpu")} of the GPUs` : ""}.`),
    h("p", {}, h("button", { type: "button", onclick: () => save("usage.csv", [heads, ...texts]) }, "CSV")),
    rows.length > 0 ? table("By account and user", [...heads, ""], cells) : h("p", {}, "Nothing was used."),
  ].filter(Boolean);
}

const part = (cluster, kind) => (cluster.reported[kind] ? (100 * cluster.allocated[kind]) / cluster.reported[kind] : 0);
const share = (cluster, kind) => `${part(cluster, kind).toFixed(1)} %`;

/** One month after another: a report reads the books. */
async function loadMonths(element) {
  element.replaceChildren("…");
  const points = [];
  try {
    const today = new Date(now());
    for (let back = MONTHS - 1; back >= 0; back -= 1) {
      const from = new Date(today.getFullYear(), today.getMonth() - back, 1).getTime();
      const until = Math.min(Math.round(now()), new Date(today.getFullYear(), today.getMonth() - back + 1, 1).getTime());
      if (from >= until) continue;
      const { cluster } = await get(`usage?from=${from}&until=${until}`);
      if (cluster) points.push([from, part(cluster, "cpu"), part(cluster, "gpu")]);
    }
    const words = (value) => `${value.toFixed(1)} %`;
    const charts = [["CPUs", 1], ["GPUs", 2]].map(([name, place]) => chart(`${name} in use`, points.map((point) => [point[0], point[place]]), 100, words));
    element.replaceChildren(...charts.filter(Boolean));
  } catch (error) {
    element.replaceChildren(h("p", { class: "error" }, error.message));
  }
}
