// The cluster at a glance: totals, the map of nodes, how long jobs wait, and utilisation.

import { get } from "./api.js";
import { h, painted } from "./dom.js";
import { bytes, colour, setClock, time } from "./format.js";
import { NodeMap } from "./node_map.js";
import { queue } from "./queue_store.js";

/** A change of a job changes the map too: it is fetched no more often than this. */
const INTERVAL_MS = 2_000;

export function overview(_, profile) {
  const totals = h("dl", { class: "totals" });
  const users = h("span");
  const map = new NodeMap(profile.user);
  const below = h("div");
  let belowMap = null;
  let isClosed = false;
  let answer = null;
  let due = null;

  const load = async () => {
    answer = await get("nodes");
    setClock(answer.now);
    map.draw(answer.nodes);
    drawTotals(totals, answer.nodes);
    drawUsers(users, answer.nodes);
  };
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      load().catch(() => {});
    }, INTERVAL_MS);
  };
  const queueChanged = () => {
    belowMap?.drawWaits(queue.rows.values());
    if (answer) drawTotals(totals, answer.nodes);
  };
  const loadBelow = async () => {
    const { BelowMap } = await import("./below_map.js");
    if (isClosed) return;
    belowMap = new BelowMap(profile, load);
    belowMap.drawWaits(queue.rows.values());
    below.replaceChildren(belowMap.element);
    await belowMap.utilisation.load();
  };
  queue.addEventListener("change", queueChanged);
  const drawn = load().then(painted);

  return {
    title: "Overview",
    element: h("section", {}, h("h1", {}, "Overview"), totals,
      h("p", { class: "legend" },
        legend("free", "free"), legend("busy", "busy, a colour for each user"), users, legend("own", "yours"), legend("out", "out of service"), legend("failing", "reports a fault")),
      map.element, below),
    drawn,
    // The map comes first: the queue may be long, and what is below the map has modules of its own.
    ready: drawn.then(() => Promise.all([queue.refresh().then(queueChanged), loadBelow()])),
    update: (what) => {
      if (what.jobs) queue.refresh().catch(() => {});
      if (what.jobs || what.nodes) later();
    },
    close: () => {
      isClosed = true;
      clearTimeout(due);
      belowMap?.utilisation.close();
      queue.removeEventListener("change", queueChanged);
    },
  };
}

const legend = (kind, text) => h("span", {}, h("span", { class: `gpu ${kind}`, "aria-hidden": "true" }), ` ${text} `);

/** Users whose colours are told; of more there are several of a colour. */
const USERS_MAX = 12;

/** The colours of those who hold GPUs. */
function drawUsers(element, nodes) {
  const names = new Set(nodes.flatMap((node) => node.gpus.map((gpu) => gpu.holder?.user)).filter(Boolean));
  const shown = [...names].sort().slice(0, USERS_MAX);
  const said = shown.join(" ");
  if (element.dataset.said === said) return;
  element.dataset.said = said;
  element.replaceChildren(...shown.map((name) => legend(`busy ${colour(name)}`, name)), names.size > shown.length ? "… " : "");
}

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
