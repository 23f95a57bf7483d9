// A page that is left open: for a week, and behind another tab, where it asks for nothing until somebody looks at it again.

import assert from "node:assert/strict";
import { newPage, settings, shell } from "./harness.mjs";

const WEEK_MS = 7 * 24 * 3_600_000;
/** Timers that a week was too long for fire once, and not once for each time. */
const REQUESTS_MAX = 20;

const submit = async (name) => (await shell(`sbatch --parsable -H -J ${name} -o /dev/null --wrap true`)).trim();
const row = (page, id) => page.waitForSelector(`.list-row a[href="#/job/${id}"]`);

/** Says to the page whether somebody sees it. */
const setHidden = (page, isHidden) => page.evaluate((value) => {
  Object.defineProperty(document, "hidden", { value, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}, isHidden);

/** The context is signed in. */
export async function leftOpen(context) {
  const page = await newPage(context);
  const seen = await newPage(context);
  let requests = 0;
  page.on("request", (request) => {
    if (request.url().includes("/api/web/")) requests += 1;
  });
  await page.clock.install();
  for (const one of [page, seen]) {
    await one.goto(`${settings.base}/#/queue`);
    await one.waitForSelector(".list");
  }
  const before = requests;
  await page.clock.fastForward(WEEK_MS);
  await row(page, await submit("after-a-week"));
  assert.ok(requests - before < REQUESTS_MAX, `${requests - before} requests after a week`);
  await setHidden(page, true);
  const asked = requests;
  const unseen = await submit("while-hidden");
  // Both tabs hear of it from the same worker.
  await row(seen, unseen);
  assert.equal(requests, asked, "nobody sees the page");
  await setHidden(page, false);
  await row(page, unseen);
  for (const one of [page, seen]) {
    assert.deepEqual(one.faults, []);
    await one.close();
  }
}
