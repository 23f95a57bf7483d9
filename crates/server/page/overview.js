// The cluster at a glance: totals, and a map of nodes with a cell for each GPU.

import { forms } from "./administer.js";
import { get } from "./api.js";
import { h, painted } from "./dom.js";
import { bytes, colour, setClock, time } from "./format.js";
import { queue } from "./queue_store.js";
import { jobAddress } from "./router.js";
import { Utilisation, waits } from "./utilisation.js";

/** A change of a job changes the map too: it is fetched no more often than this. */
const INTERVAL_MS = 2_000;

export function overview(_, profile) {
  const totals = h("dl", { class: "totals" });
  const map = h("ul", { class: "map", "aria-label": "Nodes and their GPUs" });
  const drawn = new Map();
  const utilisation = new Utilisation();
  const queues = h("div");
  let answer = null;
  let due = null;

  const load = async () => {
    answer = await get("nodes");
    setClock(answer.now);
    drawMap(map, drawn, answer.nodes, profile.user);
    drawTotals(totals, answer.nodes);
  };
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      load().catch(() => {});
    }, INTERVAL_MS);
  };
  const queueChanged = () => {
    queues.replaceChildren(waits(queue.rows.values()));
    if (answer) drawTotals(totals, answer.nodes);
  };
  queue.addEventListener("change", queueChanged);
  const firstDrawn = load().then(painted);

  return {
    title: "Overview",
    element: h("section", {}, h("h1", {}, "Overview"), totals,
      h("p", { class: "legend" },
        legend("free", "free"), legend("busy", "busy, a colour for each user"), legend("own", "yours"), legend("out", "out of service"), legend("failing", "reports a fault")),
      map, forms("nodes", profile, load), queues, utilisation.element),
    drawn: firstDrawn,
    // The map comes first: the queue may be long.
    ready: firstDrawn.then(() => Promise.all([queue.refresh().then(queueChanged), utilisation.load()])),
    update: (what) => {
      if (what.jobs) queue.refresh().catch(() => {});
      if (what.jobs || what.nodes) later();
    },
    close: () => {
      clearTimeout(due);
      utilisation.close();
      queue.removeEventListener("change", queueChanged);
    },
  };
}

const legend = (kind, text) => h("span", {}, h("span", { class: `gpu ${kind}`, "aria-hidden": "true" }), ` ${text} `);

function drawTotals(element, nodes) {
  const sum = (of) => nodes.reduce((total, node) => total + of(node), 0);
  const jobs = [...queue.rows.values()];
  const waiting = jobs.filter((job) => job.waiting);
  const next = waiting.map((job) => job.start).filter(Boolean).sort((a, b) => a - b)[0];
  const gpus = sum((node) => node.gpus.length);
  const entries = [
    ["Nodes in service", `${nodes.filter((node) => node.available).length} of ${nodes.length}`],
    ["GPUs in use", gpus ? `${sum((node) => node.gpus.filter((gpu) => gpu.used).length)} of ${gpus}` : "none here"],
    ["CPUs in use", `${sum((node) => node.cpus_used)} of ${sum((node) => node.cpus)}`],
    ["Memory in use", `${bytes(sum((node) => node.memory_used))} of ${bytes(sum((node) => node.memory))}`],
    ["Running", jobs.length - waiting.length],
    ["Waiting", waiting.length],
    ["Next expected start", next ? time(next) : "–"],
  ];
  element.replaceChildren(...entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Draws what changed: a node that is as it was keeps its elements. */
function drawMap(map, drawn, nodes, user) {
  const names = new Set(nodes.map((node) => node.name));
  for (const [name, known] of drawn) {
    if (names.has(name)) continue;
    known.element.remove();
    drawn.delete(name);
  }
  for (const node of nodes) {
    const content = JSON.stringify({ ...node, load: 0 });
    const known = drawn.get(node.name);
    if (known?.content === content) continue;
    const element = nodeElement(node, user);
    if (known) known.element.replaceWith(element);
    else map.append(element);
    drawn.set(node.name, { content, element });
  }
}

function nodeElement(node, user) {
  const kind = node.available ? "" : " out";
  const words = `${node.cpus_used} of ${node.cpus} CPUs, ${bytes(node.memory_used)} of ${bytes(node.memory)}`;
  return h("li", { class: `node${kind}` },
    h("div", { class: "node-head" }, h("b", {}, node.name), " ", h("span", { class: "state" }, node.state)),
    node.gpus.length
      ? h("div", { class: "gpus" }, node.gpus.map((gpu, index) => gpuCell(gpu, index, node, user)))
      : h("meter", { min: 0, max: node.cpus, value: node.cpus_used, "aria-label": words }),
    h("div", { class: "node-words" }, words),
    node.reason && h("div", { class: "reason" }, node.reason));
}

function gpuCell(gpu, index, node, user) {
  const name = `GPU ${index}${gpu.kind ? ` (${gpu.kind})` : ""}`;
  const fault = gpu.fault ? `; ${gpu.fault.failing ? "failing" : "warning"}: ${gpu.fault.text}` : "";
  const mark = gpu.fault ? " failing" : "";
  if (gpu.holder) {
    const own = gpu.holder.user === user ? " own" : "";
    const label = `${name}: job ${gpu.holder.job} of ${gpu.holder.user}${fault}`;
    return h("a", { class: `gpu busy ${colour(gpu.holder.user)}${own}${mark}`, href: jobAddress(gpu.holder.job), title: label, "aria-label": label });
  }
  const kind = gpu.used ? "busy" : node.available ? "free" : "out";
  const label = `${name}: ${gpu.used ? "in use" : node.available ? "free" : "out of service"}${fault}`;
  return h("span", { class: `gpu ${kind}${mark}`, title: label, role: "img", "aria-label": label });
}
