// What was used in a period, by account and user, and how much of the cluster that was, month by month.

import { get } from "./api.js";
import { barChart } from "./chart.js";
import { save } from "./csv.js";
import { h, table } from "./dom.js";
import { now } from "./format.js";
import { replaceAddress } from "./router.js";
import { Months, part } from "./usage_months.js";

const DAY = 86_400_000;
/** The largest accounts and users of a chart; the table has all. */
const BARS_MAX = 12;
const PERIODS = { "7 days": 7, "30 days": 30, "90 days": 90, "1 year": 365 };

export function usageView(route) {
  const asked = Number(route.query.get("days"));
  let days = Object.values(PERIODS).includes(asked) ? asked : 30;
  const content = h("div");
  const months = new Months();

  let isUnanswered = false;

  const load = async () => {
    isUnanswered = false;
    const until = Math.round(now());
    const answer = await get(`usage?from=${until - days * DAY}&until=${until}`);
    content.replaceChildren(...parts(answer));
  };
  const reload = () => load().catch((error) => {
    isUnanswered = error.status === 0;
    content.replaceChildren(h("p", { class: "error" }, error.message));
  });
  const select = h("select", { id: "days", onchange: () => {
    days = Number(select.value);
    replaceAddress("usage", { days });
    reload();
  } }, Object.entries(PERIODS).map(([name, value]) => h("option", { value, selected: value === days }, name)));

  return {
    title: "Usage",
    element: h("section", {}, h("h1", {}, "Usage"),
      h("p", {}, h("label", { for: "days" }, "The last "), select), content, months.element),
    ready: load(),
    // The server is there again.
    update: () => isUnanswered && reload(),
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
    h("p", {}, h("button", { type: "button", onclick: () => save("usage.csv", [heads, ...texts]) }, "As CSV")),
    rows.length > 0 && totals("By account", "account", rows),
    rows.length > 0 && totals("By user", "user", rows),
    rows.length > 0 ? table("By account and user", [...heads, "Beside others"], cells) : h("p", {}, "Nothing was used."),
  ].filter(Boolean);
}

/** One bar for each account or user, the largest first. */
function totals(title, key, rows) {
  const sums = new Map();
  for (const row of rows) {
    const sum = sums.get(row[key]) ?? { cpu: 0, gpu: 0 };
    sums.set(row[key], { cpu: sum.cpu + row.used.cpu, gpu: sum.gpu + row.used.gpu });
  }
  const hasGpus = rows.some((row) => row.used.gpu > 0);
  const bars = [...sums].map(([name, sum]) => [name, hasGpus ? sum.gpu : sum.cpu]).sort((one, other) => other[1] - one[1]);
  return barChart(`${title}, ${hasGpus ? "GPU" : "CPU"} hours`, bars.slice(0, BARS_MAX), (value) => `${rounded(value)} h`);
}

const share = (cluster, kind) => `${part(cluster, kind).toFixed(1)} %`;
