// How much of the cluster was in use over the last hours, and how long jobs of each partition wait.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, table } from "./dom.js";
import { duration, now, time } from "./format.js";

const RANGES = { "6 hours": 6, "1 day": 24, "1 week": 168 };
/** The server takes a sample each minute. */
const INTERVAL_MS = 60_000;

const percent = (value) => `${value.toFixed(0)} %`;
const jobs = (value) => `${Math.round(value)} jobs`;

export class Utilisation {
  #hours = 24;
  #charts = h("div", { class: "charts" });
  #select = h("select", { id: "load-hours", onchange: () => {
    this.#hours = Number(this.#select.value);
    this.load().catch(() => {});
  } }, Object.entries(RANGES).map(([name, value]) => h("option", { value, selected: value === 24 }, name)));
  #timer = setInterval(() => document.hidden || this.load().catch(() => {}), INTERVAL_MS);
  element = h("section", {}, h("h2", {}, "Utilisation"),
    h("p", {}, h("label", { for: "load-hours" }, "The last "), this.#select), this.#charts);

  async load() {
    const { samples } = await get(`load?hours=${this.#hours}`);
    const share = (used, all) => samples.filter((one) => one[all] > 0).map((one) => [one.at, (100 * one[used]) / one[all]]);
    const drawn = [
      chart("GPUs in use", share("gpus_used", "gpus"), 100, percent),
      chart("CPUs in use", share("cpus_used", "cpus"), 100, percent),
      chart("Running", samples.map((one) => [one.at, one.running]), null, jobs),
      chart("Waiting", samples.map((one) => [one.at, one.waiting]), null, jobs),
    ].filter(Boolean);
    this.#charts.replaceChildren(...drawn.length ? drawn : ["There are no samples yet: one is taken each minute."]);
  }

  close() {
    clearInterval(this.#timer);
  }
}

/** For each partition how many wait, and how long the next one and half of them are expected to. */
export function waits(rows) {
  const partitions = new Map();
  for (const job of rows) {
    const counts = partitions.get(job.partition) ?? { running: 0, waiting: 0, starts: [] };
    counts[job.waiting ? "waiting" : "running"] += 1;
    if (job.waiting && job.start) counts.starts.push(job.start);
    partitions.set(job.partition, counts);
  }
  const cells = [...partitions].sort(([one], [other]) => one.localeCompare(other)).map(([name, counts]) => {
    const starts = counts.starts.sort((one, other) => one - other);
    const half = starts[Math.floor(starts.length / 2)];
    return [name, counts.running, counts.waiting, starts.length ? time(starts[0]) : "–", half ? duration((half - now()) / 1000) : "–"];
  });
  return cells.length ? table("Queue by partition", ["Partition", "Running", "Waiting", "Next expected start", "Half start within"], cells) : "";
}
