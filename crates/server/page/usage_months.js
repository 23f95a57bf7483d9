// What was used month by month: how much of the cluster, and by whom.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { save } from "./csv.js";
import { h, table } from "./dom.js";
import { now } from "./format.js";

const MONTHS = 12;
const HEADS = ["Month", "Account", "User", "Jobs", "CPU hours", "GPU hours"];

/** How much of the cluster was in use, in per cent. */
export const part = (cluster, kind) => (cluster.reported[kind] ? (100 * cluster.allocated[kind]) / cluster.reported[kind] : 0);
const percent = (value) => `${value.toFixed(1)} %`;

/** `2026-11` */
function nameOf(at) {
  const day = new Date(at);
  return `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, "0")}`;
}

/** The months with their names, and the times between which each is. */
function months() {
  const today = new Date(now());
  return Array.from({ length: MONTHS }, (_, index) => {
    const first = new Date(today.getFullYear(), today.getMonth() - (MONTHS - 1 - index), 1);
    const next = new Date(first.getFullYear(), first.getMonth() + 1, 1);
    return { name: nameOf(first), from: first.getTime(), until: Math.min(Math.round(now()), next.getTime()) };
  }).filter((month) => month.from < month.until);
}

export class Months {
  #content = h("div", { role: "status" });
  #button = h("button", { type: "button", onclick: () => this.#load() }, "By month");
  element = h("section", {}, h("p", {}, this.#button), this.#content);

  /** One month after another: a report reads the books. */
  async #load() {
    this.#button.disabled = true;
    const [points, rows] = [[], []];
    try {
      for (const month of months()) {
        this.#content.textContent = `Reading ${month.name}…`;
        const answer = await get(`usage?from=${month.from}&until=${month.until}`);
        if (answer.cluster) points.push([month.from, part(answer.cluster, "cpu"), part(answer.cluster, "gpu")]);
        rows.push(...answer.rows.map((row) => [month.name, row.account, row.user, String(row.jobs), row.used.cpu.toFixed(1), row.used.gpu.toFixed(1)]));
      }
      this.#draw(points, rows);
    } catch (error) {
      this.#content.replaceChildren(h("p", { class: "error" }, error.message));
    } finally {
      this.#button.disabled = false;
    }
  }

  #draw(points, rows) {
    const line = (name, place) => chart(`${name} in use`, points.map((point) => [point[0], point[place]]), 100, percent, nameOf);
    this.#content.replaceChildren(
      h("div", { class: "charts" }, line("CPUs", 1), line("GPUs", 2)),
      h("p", {}, h("button", { type: "button", onclick: () => save("usage-by-month.csv", [HEADS, ...rows]) }, "Months as CSV")),
      rows.length > 0 ? table("By month, account and user", HEADS, rows.toReversed()) : h("p", {}, "Nothing was used."));
  }
}
