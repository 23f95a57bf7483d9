// Signing in at an identity provider by the page's button, as a person does it.

import assert from "node:assert/strict";
import { ask, check, isAccessible, isSound, newPage, run, settings } from "./harness.mjs";

run(async (browser) => {
  const { user, provider } = await ask("jobs");
  const context = await browser.newContext({ locale: "en-GB" });
  // The provider's own page names a style sheet of another server, which a machine without a network would wait for.
  await context.route("https://**", (route) => route.abort());
  const page = await newPage(context);
  const button = `a:has-text("Sign in at ${provider}")`;
  await check("the button is offered beside the token", async () => {
    await page.goto(`${settings.base}/#/queue?q=mine`);
    await page.waitForSelector(button);
    await page.waitForSelector("#token");
    await isAccessible(page, "sign-on");
  });
  await check("whom the provider refuses is told so, with a way back", async () => {
    await page.click(button);
    await page.click("button:has-text('Deny')");
    await page.waitForSelector("h1:has-text('Not signed in')");
    await isAccessible(page, "sign-on-refused");
    await page.click("a:has-text('Sign in again')");
    await page.waitForSelector(button);
  });
  await check("whom the provider knows is signed in, at the view that was left", async () => {
    await page.goto(`${settings.base}/#/queue?q=mine`);
    await page.click(button);
    await page.click(`button[name=sub][value=${user}]`);
    await page.waitForSelector("main h1:has-text('Queue')");
    assert.match(await page.innerText(".who"), new RegExp(`^${user} \\(user\\)`));
    assert.equal(await page.inputValue("#filter"), "mine");
    await isSound(page);
  });
  await check("a session that the server did not end is shown again by the next visit", async () => {
    const path = "**/api/web/session";
    await context.route(path, (route) => route.request().method() === "DELETE" ? route.abort() : route.continue());
    await page.click("button:has-text('Sign out')");
    await page.waitForSelector(button);
    await context.unroute(path);
    await page.reload();
    await page.waitForSelector("main h1:has-text('Queue')");
  });
  await check("signing out shows the button again", async () => {
    await page.click("button:has-text('Sign out')");
    await page.waitForSelector(button);
  });
});
