// A queue of ten thousand jobs: what is on the screen alone is in the page.

import assert from "node:assert/strict";
import { newPage, settings } from "./harness.mjs";

const JOBS = 10_000;
/** A screen of rows with those above and below it. */
const ROWS_MAX = 80;

function rows() {
  return Array.from({ length: JOBS }, (_, index) => ({
    id: index + 1, shown: String(index + 1), name: `job-${index + 1}`, user: index % 7 ? "ann" : "bob", account: "main", partition: "gpu", qos: "normal",
    state: "PENDING", reason: "Priority", nodes: "", node_count: 1, cpus: 1, gpus: 0, priority: JOBS - index, submit: Date.now(), start: null, end: null,
    limit_s: 3600, waiting: true, ended: false, run: false, service: null,
  }));
}

/** The context is signed in; its answers for the queue are made here. */
export async function queueOfTenThousand(context) {
  const page = await newPage(context);
  const body = JSON.stringify({ seq: 1, now: Date.now(), whole: true, cut: false, rows: rows(), gone: [] });
  await page.route("**/api/web/jobs**", (route) => route.fulfill({ contentType: "application/json", body }));
  await page.goto(`${settings.base}/#/queue`);
  await page.waitForSelector(".list-row");
  const count = () => page.locator(".list-row").count();
  assert.equal(await page.locator(".list").getAttribute("aria-rowcount"), String(JOBS + 1));
  assert.ok(await count() < ROWS_MAX, "only the rows of the screen are elements");
  const frames = await page.evaluate(async () => {
    const list = document.querySelector(".list");
    let drawn = 0;
    for (let at = 0; at < list.scrollHeight; at += list.scrollHeight / 60) {
      list.scrollTop = at;
      await new Promise(requestAnimationFrame);
      await new Promise(requestAnimationFrame);
      if (document.querySelector(".list-row")) drawn += 1;
    }
    return drawn;
  });
  assert.ok(frames >= 60, `rows were there in ${frames} frames`);
  await page.locator(".list").focus();
  await page.keyboard.press("End");
  await page.waitForSelector(`.list-row.active a[href="#/job/${JOBS}"]`);
  assert.ok(await count() < ROWS_MAX, "at the end as well");
  const named = () => page.locator(".list").getAttribute("aria-activedescendant");
  const scroll = (to) => page.evaluate((top) => { document.querySelector(".list").scrollTop = top; }, to);
  assert.equal(await named(), `row-${JOBS}`);
  await scroll(0);
  await page.waitForSelector('.list-row[aria-rowindex="2"]');
  assert.equal(await named(), null, "a row without an element is not named");
  await scroll(1e9);
  await page.waitForSelector(`.list-row.active a[href="#/job/${JOBS}"]`);
  assert.equal(await named(), `row-${JOBS}`);
  const place = () => page.evaluate(() => document.querySelector(".list").scrollTop);
  const before = await place();
  await page.click("header nav a:has-text('Submit')");
  await page.waitForSelector("#script");
  await page.goBack();
  await page.waitForSelector(`.list-row a[href="#/job/${JOBS}"]`);
  assert.equal(await place(), before, "who comes back finds the place");
  await page.fill("#filter", `job-${JOBS}`);
  await page.waitForFunction(() => document.querySelectorAll(".list-row").length === 1);
  assert.deepEqual(page.faults, []);
  await page.close();
}
