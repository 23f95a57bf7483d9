// A page that is left open: for a week, and behind another tab, where it asks for nothing until somebody looks at it again.

import assert from "node:assert/strict";
import { ask, newPage, settings, shell, shows } from "./harness.mjs";

const WEEK_MS = 7 * 24 * 3_600_000;
/** More than the page waits for a word of the server. */
const SILENCE_MS = 26_000;
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

/** The server did not answer when the page was loaded: the page goes on when it does. */
export async function loadedTooEarly(context) {
  const page = await newPage(context);
  await page.clock.install();
  await page.route("**/api/web/**", (route) => route.abort());
  await page.goto(`${settings.base}/#/queue`);
  await shows(page, "does not answer", "main > .error");
  await page.unroute("**/api/web/**");
  await page.clock.fastForward(SILENCE_MS);
  await page.waitForSelector(".list");
  assert.equal(await page.locator("main > .error").count(), 0);
  await page.close();
}

/** The server is stopped, and its connections stay: by its silence alone the page knows. Without a worker, whose clock is its own. */
export async function hangs(context) {
  const page = await newPage(context);
  await page.addInitScript(() => { delete window.SharedWorker; });
  await page.clock.install();
  await page.goto(`${settings.base}/#/submit`);
  await shows(page, "Would start", "#checked");
  await ask("hang");
  try {
    await page.clock.fastForward(SILENCE_MS);
    await shows(page, "does not answer", "#notice");
  } finally {
    await ask("go on");
  }
  await page.waitForFunction(() => document.getElementById("notice").textContent === "");
  // What could not be checked meanwhile is checked again without being touched.
  await page.route("**/api/web/check", (route) => route.abort());
  await page.fill("#script", "#!/bin/sh\ntrue\n");
  await page.clock.fastForward(SILENCE_MS);
  await shows(page, "does not answer", "#checked");
  await page.unroute("**/api/web/check");
  await shell("sbatch -H -o /dev/null --wrap true");
  await shows(page, "Would start", "#checked");
  assert.deepEqual(page.faults, []);
  await page.close();
}
