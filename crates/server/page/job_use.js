// What a job uses beside what it has: a table for now, and charts of the time until now.

import { chart } from "./chart.js";
import { table } from "./dom.js";
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

/** `allocation`: a part for each node; `loads`: `[node, load]`. */
export function useTable(allocation, loads) {
  const known = new Map(loads);
  const rows = allocation.filter((part) => known.has(part.node)).map((part) => {
    const { samples = [], gpus = [] } = known.get(part.node);
    const busy = gpus.map((gpu) => gpu.readings?.at(-1)?.busy_percent).filter((value) => value !== undefined);
    const used = newest(cpuPoints(samples));
    return [
      part.node,
      cpuCount(part.cpus), used === undefined ? "–" : used.toFixed(1),
      part.memory ? bytes(part.memory) : "–", samples.length ? bytes(samples.at(-1).memory) : "–",
      part.gres.join(", ") || "–", busy.length ? busy.map((value) => `${value} %`).join(", ") : "–",
    ];
  });
  return table("What it has, and uses now", ["Node", "CPUs", "in use", "Memory", "in use", "Devices", "GPUs busy"], rows);
}

/** CPU, memory and GPUs on each node. */
export function charts(loads) {
  return loads.flatMap(([node, { samples = [], gpus = [] }]) => [
    chart(`${node}: CPU`, cpuPoints(samples), null, cpuWords),
    chart(`${node}: memory`, samples.map((sample) => [sample.at, sample.memory]), null, bytes),
    ...gpus.flatMap((gpu, index) => gpuCharts(`${node}: GPU ${index}`, gpu)),
  ]).filter(Boolean);
}

function gpuCharts(name, { readings = [], memory_total: total }) {
  return [
    chart(name, readings.map((read) => [read.at, read.busy_percent]), 100, (value) => `${value} %`),
    chart(`${name}, memory`, readings.map((read) => [read.at, read.memory_used]), total, bytes),
  ];
}
