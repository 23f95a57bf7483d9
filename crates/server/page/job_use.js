// What a job asked for beside what bounds it and what it uses: tables for now, and charts of the time until now.

import { chart } from "./chart.js";
import { h, table } from "./dom.js";
import { bytes } from "./format.js";

/** How many CPUs a list like `0-3,8` names. */
function cpuCount(list) {
  return list.split(",").filter(Boolean).reduce((sum, part) => {
    const [first, last] = part.split("-").map(Number);
    return sum + (last === undefined ? 1 : last - first + 1);
  }, 0);
}

/** CPUs in use between one sample and the next. */
function cpuPoints(samples) {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index];
    return [sample.at, (sample.cpu_us - before.cpu_us) / Math.max(1, (sample.at - before.at) * 1_000)];
  });
}

const newest = (points) => points.at(-1)?.[1];
const cpuWords = (value) => `${value.toFixed(1)} CPUs`;

/** What the job asked for, what its processes are bounded by on each node, and what they use now and have used. `loads`: `[node, load]`. */
export function resources(page, loads) {
  const known = new Map(loads);
  return [
    h("h2", {}, "Asked for, limits and use"),
    h("div", { class: "side-by-side" },
      table("Asked for", ["What", "How much"], page.request),
      page.allocation.length > 0 && nodeTable(page.allocation, known)),
    h("div", { class: "charts" }, page.allocation.flatMap((part) => charts(part, known.get(part.node)))),
  ];
}

function nodeTable(allocation, loads) {
  const rows = allocation.map((part) => {
    const { samples = [], gpus = [] } = loads.get(part.node) ?? {};
    const busy = gpus.map((gpu) => gpu.readings?.at(-1)?.busy_percent).filter((value) => value !== undefined);
    const used = newest(cpuPoints(samples));
    return [
      part.node,
      `${cpuCount(part.cpus)} (${part.cpus || "none"})`, used === undefined ? "–" : used.toFixed(1),
      part.memory ? bytes(part.memory) : "–", samples.length ? bytes(samples.at(-1).memory) : "–",
      part.gres.join(", ") || "–", busy.length ? busy.map((value) => `${value} %`).join(", ") : "–",
    ];
  });
  return table("Limits, and use now", ["Node", "CPUs", "in use", "Memory", "in use", "Devices", "GPUs busy"], rows);
}

/** CPU, memory and GPUs on a node, up to what the job has there. */
function charts(part, { samples = [], gpus = [] } = {}) {
  const memory = samples.map((sample) => [sample.at, sample.memory]);
  return [
    chart(`${part.node}: CPU`, cpuPoints(samples), cpuCount(part.cpus), cpuWords),
    chart(`${part.node}: memory${part.memory ? ` of ${bytes(part.memory)}` : ""}`, memory, part.memory, bytes),
    ...gpus.flatMap((gpu, index) => gpuCharts(`${part.node}: GPU ${index}`, gpu)),
  ].filter(Boolean);
}

function gpuCharts(name, { readings = [], memory_total: total }) {
  return [
    chart(name, readings.map((read) => [read.at, read.busy_percent]), 100, (value) => `${value} %`),
    chart(`${name}, memory`, readings.map((read) => [read.at, read.memory_used]), total, bytes),
  ];
}
