// The timeline: jobs that share a node below each other, the job itself marked; as wide as there is room, with nothing cut off; and
// colours that tell users apart.

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

/** The timeline in rooms of these widths: its width, where its labels end, and what is beside them. Runs in the page. */
async function drawnIn(rooms) {
  const file = document.querySelector('link[href$="/node_map.js"]').href.replace("node_map.js", "gantt.js");
  const { gantt } = await import(file);
  const [now, hour] = [Date.now(), 3_600_000];
  const nodes = ["n1", "a-node-with-a-very-long-name-in-the-third-row-of-the-second-hall-0042"];
  const bars = [{ job: 1, shown: "1", name: "x", user: "ann", start: now, end: now + hour, nodes, expected: false, kept: false }];
  return rooms.map((room) => {
    const drawing = gantt({ nodes, bars, reservations: [] }, { from: now - hour, to: now + 24 * hour, now }, () => {}, undefined, room);
    document.getElementById("main").append(drawing);
    const boxes = [...drawing.querySelectorAll(".label")].map((label) => label.getBBox());
    const times = boxes.filter((box) => box.y < 10).sort((one, other) => one.x - other.x);
    const found = {
      width: Number(drawing.getAttribute("width")),
      right: Math.max(...boxes.map((box) => box.x + box.width)),
      meet: times.slice(1).filter((box, at) => times[at].x + times[at].width > box.x).length,
      names: Math.max(...boxes.filter((box) => box.y >= 10).map((box) => box.width)),
      bar: Number(drawing.querySelector(".bar").getAttribute("x")),
      title: drawing.querySelector(".label title")?.textContent,
      text: [...drawing.querySelectorAll(".label")].at(-1).firstChild.data,
    };
    drawing.remove();
    return found;
  });
}

export async function timelineFillsItsRoom(page) {
  for (const [at, found] of (await page.evaluate(drawnIn, [300, 1000, 2400])).entries()) {
    assert.equal(found.width, [640, 1000, 2400][at]);
    assert.ok(found.right <= found.width && found.meet === 0, `labels are whole: ${JSON.stringify(found)}`);
    assert.ok(found.names < found.bar, `names end before the bars: ${JSON.stringify(found)}`);
    assert.match(found.text, /0042$/);
  }
  const [narrow] = await page.evaluate(drawnIn, [300]);
  assert.match(narrow.title, /^a-node-with-a-very-long-name/, "what is cut is told");
}

export async function usersHaveColoursOfTheirOwn(page) {
  const found = await page.evaluate(async () => {
    // A module of its own: in that of the page some users have a colour already.
    const { colour } = await import(`${document.querySelector('link[href$="/node_map.js"]').href.replace("node_map.js", "format.js")}?alone`);
    const users = Array.from({ length: 12 }, (_, at) => `user${at}`);
    return [users.map(colour), users.map(colour), colour("one-more")];
  });
  assert.equal(new Set(found[0]).size, 12, "each of the first has one");
  assert.deepEqual(found[1], found[0], "and keeps it");
  assert.match(found[2], /^c\d+$/);
}
