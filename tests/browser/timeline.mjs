// Jobs that share a node on the timeline: below each other, and the job itself marked.

import assert from "node:assert/strict";

/** What the timeline draws of three jobs on one node, of which two run at once. Runs in the page. */
async function drawn() {
  const file = document.querySelector('link[href$="/node_map.js"]').href.replace("node_map.js", "gantt.js");
  const { gantt } = await import(file);
  const [now, hour] = [Date.now(), 3_600_000];
  const bar = (job, start, end, nodes) => ({ job, shown: String(job), name: "x", user: "ann", start: now + start * hour, end: now + end * hour, nodes, expected: start > 0, kept: false });
  const bars = [bar(1, -1, 2, ["n1"]), bar(2, -1, 3, ["n1", "n2"]), bar(3, 2, 4, ["n1"])];
  const drawing = gantt({ nodes: ["n1", "n2"], bars, reservations: [] }, { from: now - 2 * hour, to: now + 5 * hour, now }, () => {}, 2);
  return [...drawing.querySelectorAll("a rect")].map((rect) => {
    const place = (name) => Number(rect.getAttribute(name));
    return { job: rect.parentNode.getAttribute("href"), x: place("x"), y: place("y"), right: place("x") + place("width"), foot: place("y") + place("height"), own: rect.classList.contains("own") };
  });
}

export async function jobsShareANode(page) {
  const bars = await page.evaluate(drawn);
  assert.equal(bars.length, 4, "a bar on each node");
  const meet = (one, other) => one.x < other.right && other.x < one.right && one.y < other.foot && other.y < one.foot;
  const covered = bars.filter((one, at) => bars.some((other, index) => index !== at && meet(one, other)));
  assert.deepEqual(covered, [], "no bar covers another");
  assert.deepEqual(bars.filter((one) => one.own).map((one) => one.job), ["#/job/2", "#/job/2"]);
}
