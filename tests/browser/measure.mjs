// For bench/web.py: how long the overview's map takes to be drawn, and a queue page that is left open.

import { ask, launch, newPage, settings, show, signIn } from "./harness.mjs";

const ROUNDS = 11;

/** Milliseconds from the begin of a visit until the map of so many nodes is drawn. Runs in the page. */
function watchMap(nodes) {
  window.drawn = new Promise((resolve) => {
    const look = () => {
      const isThere = document.querySelectorAll(".map .node").length >= nodes;
      requestAnimationFrame(isThere ? () => setTimeout(() => resolve(performance.now())) : look);
    };
    look();
  });
}

const browser = await launch();
try {
  const page = await newPage(await browser.newContext());
  await signIn(page);
  await page.addInitScript(watchMap, settings.nodes);
  await show(page, "overview", "Overview");
  const times = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    await page.reload();
    times.push(await page.evaluate(() => window.drawn));
    // Each visit is measured by itself: the server lists the queue for the page once its map is drawn.
    await page.locator("caption", { hasText: "Queue by partition" }).waitFor({ state: "attached" });
  }
  // No page is open while the server is measured alone.
  await page.goto("about:blank");
  // The first one fills the browser's caches.
  await ask(`map ${JSON.stringify(times.slice(1))}`);
  await page.goto(`${settings.base}/#/queue`);
  await page.waitForSelector(".list-row");
  // It is answered when the page was open for long enough.
  await ask("open");
} finally {
  await browser.close();
}
process.exit(0);
