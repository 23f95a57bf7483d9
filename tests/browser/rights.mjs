// Another user's page: nothing of a job that is not his is changed or read by it, and what he may not do is not offered.

import assert from "node:assert/strict";
import { MARKUP, ask, check, isSound, newPage, run, settings, show, shows, signIn } from "./harness.mjs";

run(async (browser) => {
  const { job, own } = await ask("jobs");
  const context = await browser.newContext({ locale: "en-GB" });
  const page = await newPage(context);
  await signIn(page);
  await check("another's job is shown, and not changed or read", async () => {
    await show(page, `job/${job}`, `Job ${job}`);
    await page.waitForFunction((words) => document.querySelector("main").innerText.includes(words), MARKUP);
    for (const button of ["Cancel", "Hold", "Requeue"]) assert.equal(await page.locator(`main button:has-text("${button}")`).count(), 0, button);
    assert.equal(await page.locator("main a:has-text('Shell')").count(), 0);
    assert.equal(await page.locator(".log").isVisible(), false);
    const answers = await page.evaluate(async (id) => {
      const post = (path) => fetch(`/api/web/jobs/${id}/${path}`, { method: "POST", body: "{}" }).then((answer) => answer.status);
      return [await post("cancel"), await post("shell"), (await fetch(`/api/web/jobs/${id}/script`)).status];
    }, job);
    assert.deepEqual(answers, [403, 403, 403]);
  });
  await check("forms of administrators are not offered, and their calls are refused", async () => {
    await show(page, "overview", "Overview");
    // What is below the map comes after it.
    await shows(page, "Utilisation");
    assert.equal(await page.locator("form[aria-label='Drain']").count(), 0);
    // What is in "Change" is all that somebody without a role has a use for.
    for (const [list, heading, offered] of [
      ["accounts", "Accounts", []], ["projects", "Projects", []], ["reservations", "Reservations", []], ["fleets", "Fleets", []],
      ["tokens", "Tokens", ["Sign out everywhere", "Revoke token"]], ["volumes", "Volumes", ["Create volume", "Delete volume"]], ["secrets", "Secrets", []],
    ]) {
      await show(page, `lists/${list}`, heading);
      const forms = await page.locator("main form").evaluateAll((all) => all.map((form) => form.ariaLabel));
      assert.deepEqual(forms, offered, list);
    }
    await shows(page, "Managers of the project main, and administrators, see this list; you are signed in as games");
    await show(page, "lists/tokens", "Tokens");
    for (const name of ["Agents", "Backends", "Secrets"]) assert.equal(await page.locator(`main nav a:has-text("${name}")`).count(), 0, name);
    const status = await page.evaluate(() => fetch("/api/web/call", { method: "POST", body: JSON.stringify({ call: { set_role: { name: "games", role: "admin" } } }) }).then((answer) => answer.status));
    assert.equal(status, 403);
  });
  await check("the page is sound", () => isSound(page));
  await check("a page of another origin reads and changes nothing", async () => {
    const other = await newPage(context);
    // The same host at another port: the browser sends the cookie along, and the server looks where the request comes from.
    const elsewhere = "http://127.0.0.1:8099/";
    await other.route(`${elsewhere}**`, (route) => route.fulfill({ contentType: "text/html", body: "<p>elsewhere" }));
    await other.goto(elsewhere);
    const outcome = await other.evaluate(async ([base, id]) => {
      const read = await fetch(`${base}/api/web/jobs`, { credentials: "include" }).then((answer) => answer.status, () => "blocked");
      // What a form of any page can send.
      const changed = await fetch(`${base}/api/web/jobs/${id}/cancel`, { method: "POST", credentials: "include", mode: "no-cors", body: "{}" }).then(() => "sent", () => "blocked");
      return [read, changed];
    }, [settings.base, own]);
    // The second may be kept from the page too: the server's answers are for its own pages.
    assert.equal(outcome[0], "blocked");
    const state = await page.evaluate((id) => fetch(`/api/web/jobs/${id}`).then((answer) => answer.json()).then((answer) => answer.job.state), own);
    assert.equal(state, "RUNNING", "nothing of it was taken");
  });
});
