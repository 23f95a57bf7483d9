// The map of a thousand nodes: all of them are in the page, and the browser makes what is near the screen.

import assert from "node:assert/strict";
import { newPage, settings } from "./harness.mjs";

const NODES = 1_000;
/** Three screens of nodes, those above and below the screen among them. */
const MADE_MAX = 250;

/** Draws nodes of these numbers into a map of its own in place of the view. Runs in the page. */
async function draw(numbers) {
  if (!window.map) {
    const file = document.querySelector('link[href$="/node_map.js"]').href;
    const { NodeMap } = await import(file);
    window.map = new NodeMap("ann");
    document.getElementById("main").replaceChildren(window.map.element);
  }
  const gpu = (used) => ({ used, ...(used && { holder: { job: 7, user: "ann" } }) });
  const node = (number) => ({
    name: `node${String(number).padStart(4, "0")}`, state: "mix", available: true, reason: "", partitions: ["main"], cpus: 8, cpus_used: 1,
    memory: 2 ** 34, memory_used: 2 ** 30, load: 0, jobs: 1, gpus: Array.from({ length: 8 }, (_, at) => gpu(at < 4)),
  });
  window.map.draw(numbers.map(node));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

/** What is wrong with the rows on the screen, and how many nodes the browser has made. Runs in the page. */
function look() {
  const nodes = [...document.querySelectorAll(".map .node")];
  const made = nodes.filter((node) => node.firstChild.checkVisibility({ contentVisibilityAuto: true }));
  const rows = new Map();
  for (const node of made) {
    const { left, top } = node.getBoundingClientRect();
    rows.set(Math.round(top), [...rows.get(Math.round(top)) ?? [], Math.round(left)]);
  }
  const [first, ...others] = [...rows.values()].map((lefts) => lefts.join(" "));
  return { all: nodes.length, made: made.length, uneven: others.filter((lefts) => lefts !== first), columns: first.split(" ").length,
    isWider: document.documentElement.scrollWidth > document.documentElement.clientWidth + 1 };
}

const names = (page) => page.evaluate(() => [...document.querySelectorAll(".map .node b")].map((name) => name.textContent));

/** The context is signed in. */
export async function mapOfAThousandNodes(context) {
  const page = await newPage(context);
  await page.goto(`${settings.base}/#/submit`);
  await page.waitForSelector("#script");
  const numbers = Array.from({ length: NODES }, (_, at) => 2 * at);
  for (const [width, columns] of [[390, 1], [640, 3], [1000, 4], [1500, 6], [2500, 6]]) {
    await page.setViewportSize({ width, height: 800 });
    await page.evaluate(draw, numbers);
    const found = await page.evaluate(look);
    assert.deepEqual({ ...found, made: 0 }, { all: NODES, made: 0, uneven: [], columns, isWider: false }, `${width} pixels`);
    assert.ok(found.made > 0 && found.made < MADE_MAX, `${found.made} nodes are made`);
  }
  // A node that goes and one that comes: the others keep their elements, their order and the focus.
  await page.evaluate(() => {
    window.kept = document.querySelectorAll(".map .node")[9];
    window.kept.querySelector("a").focus();
  });
  const others = [0, 1, ...numbers.filter((number) => number !== 0 && number !== 6)];
  await page.evaluate(draw, others);
  assert.deepEqual(await names(page), others.map((number) => `node${String(number).padStart(4, "0")}`));
  assert.ok(await page.evaluate(() => document.querySelectorAll(".map .node")[9] === window.kept && window.kept.contains(document.activeElement)));
  assert.deepEqual((await page.evaluate(look)).uneven, []);
  await page.evaluate(draw, []);
  assert.deepEqual(await names(page), []);
  assert.deepEqual(page.faults, []);
  await page.close();
}
