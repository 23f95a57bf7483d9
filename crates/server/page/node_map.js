// The nodes as a map, with a cell for each GPU. Neighbours that are in the same state are one element with several cells: a cluster
// has thousands of GPUs, and few of its nodes are divided.

import { h } from "./dom.js";
import { bytes, colour } from "./format.js";
import { jobAddress } from "./router.js";

/** The most cells of one element, so that a row of them is no wider than a node on a phone. */
const CELLS_MAX = 8;

/** What every node has: a copy of it takes a browser less time than its parts one by one. */
const NODE = h("li", { class: "node" },
  h("div", { class: "node-head" }, h("b", {}), " ", h("span", { class: "state" })),
  h("div", { class: "gpus" }),
  h("div", { class: "node-words" }));

/** The nodes of a block, which fill its rows whatever its columns are: page.css has the columns. A browser makes what is in a block only
 * when it comes near the screen, and to look after a thousand nodes one by one would take it longer than to draw what is seen. */
const BLOCK_NODES = 12;

export class NodeMap {
  element = h("div", { class: "map", role: "group", "aria-label": "Nodes and their GPUs" });
  #user;
  /** By the node's name, in the order of the nodes: its element, and what that was drawn from. */
  #drawn = new Map();

  /** `user`: whose GPUs are marked. */
  constructor(user) {
    this.#user = user;
  }

  /** Draws what changed: a node that is as it was keeps its elements. */
  draw(nodes) {
    const former = this.#drawn;
    const names = [...former.keys()];
    const alike = new Map();
    this.#drawn = new Map(nodes.map((node) => {
      const known = former.get(node.name);
      if (known && isAsDrawn(known, node)) return [node.name, known];
      const element = nodeElement(node, this.#user, alike);
      known?.element.replaceWith(element);
      return [node.name, { node, content: null, element }];
    }));
    const isInPlace = nodes.length === names.length && nodes.every((node, at) => node.name === names[at]);
    if (!isInPlace) this.#arrange();
  }

  /** Puts the nodes into blocks. */
  #arrange() {
    const focused = document.activeElement;
    const elements = [...this.#drawn.values()].map(({ element }) => element);
    const blocks = [];
    for (let at = 0; at < elements.length; at += BLOCK_NODES) {
      blocks.push(h("ul", { class: "block" }, elements.slice(at, at + BLOCK_NODES)));
    }
    this.element.replaceChildren(...blocks);
    // An element that is moved loses the focus.
    if (this.element.contains(focused)) focused.focus({ preventScroll: true });
  }
}

/** The load changes all the time, and the map does not show it. */
const contentOf = (node) => JSON.stringify({ ...node, load: 0 });

function isAsDrawn(known, node) {
  known.content ??= contentOf(known.node);
  return known.content === contentOf(node);
}

/** A node as it is shown. Nodes that differ in their names alone are copies of the first of them, which is kept in `alike`: most of a
 * cluster is idle. */
function nodeElement(node, user, alike) {
  const { state, available, reason, cpus, cpus_used, memory, memory_used, gpus } = node;
  const shown = JSON.stringify([state, available, reason, cpus, cpus_used, memory, memory_used, gpus]);
  const first = alike.get(shown);
  const element = first ? first.cloneNode(true) : unnamedElement(node, user);
  if (!first) alike.set(shown, element);
  element.firstChild.firstChild.textContent = node.name;
  return element;
}

/** A node without its name. Listeners would not be copied with it: it has none. */
function unnamedElement(node, user) {
  const element = NODE.cloneNode(true);
  const [head, gpus, words] = element.children;
  if (!node.available) element.classList.add("out");
  head.lastChild.textContent = node.state;
  words.textContent = `${node.cpus_used} of ${node.cpus} CPUs, ${bytes(node.memory_used)} of ${bytes(node.memory)}`;
  if (node.gpus.length) gpus.append(...runs(node.gpus).map((run) => runElement(run, node, user)));
  else gpus.replaceWith(h("meter", { min: 0, max: node.cpus, value: node.cpus_used, "aria-label": words.textContent }));
  if (node.reason) element.append(h("div", { class: "reason" }, node.reason));
  return element;
}

/** Neighbours that differ in nothing that is shown, as `{gpu, first, count}`. One that reports a fault stands alone. */
function runs(gpus) {
  const found = [];
  gpus.forEach((gpu, index) => {
    const last = found.at(-1);
    if (last && last.count < CELLS_MAX && isSame(last.gpu, gpu)) last.count += 1;
    else found.push({ gpu, first: index, count: 1 });
  });
  return found;
}

const isSame = (one, other) =>
  one.used === other.used && one.kind === other.kind && one.holder?.job === other.holder?.job && !one.fault && !other.fault;

function runElement({ gpu, first, count }, node, user) {
  const numbers = count === 1 ? `GPU ${first}` : `GPUs ${first}–${first + count - 1}`;
  const name = `${numbers}${gpu.kind ? ` (${gpu.kind})` : ""}`;
  const fault = gpu.fault ? `; ${gpu.fault.failing ? "failing" : "warning"}: ${gpu.fault.text}` : "";
  const marks = `cells-${count}${gpu.fault ? " failing" : ""}`;
  if (gpu.holder) {
    const own = gpu.holder.user === user ? " own" : "";
    const label = `${name}: job ${gpu.holder.shown ?? gpu.holder.job} of ${gpu.holder.user}${fault}`;
    return h("a", { class: `gpu busy ${colour(gpu.holder.user)}${own} ${marks}`, href: jobAddress(gpu.holder.job), title: label, "aria-label": label });
  }
  const kind = gpu.used ? "busy" : node.available ? "free" : "out";
  const label = `${name}: ${gpu.used ? "in use" : node.available ? "free" : "out of service"}${fault}`;
  return h("span", { class: `gpu ${kind} ${marks}`, title: label, role: "img", "aria-label": label });
}
