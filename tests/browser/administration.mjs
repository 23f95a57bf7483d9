// What the page changes beside jobs, by its forms.

import assert from "node:assert/strict";
import { newPage, shell, show, shows, signIn } from "./harness.mjs";

/** Waits until the text of the view has this in it no more. */
const lacks = (page, words) => page.waitForFunction((text) => !document.querySelector("main").innerText.includes(text), words);

/** Shows a list with its forms. */
async function showForms(page, list, heading) {
  await show(page, `lists/${list}`, heading);
  await page.click("summary:has-text('Change')");
}

/** Sends a form with these values, by their labels; one that asks first is agreed to. */
async function send(page, title, values, asks = false) {
  const form = page.locator(`form[aria-label='${title}']`);
  for (const [label, value] of Object.entries(values)) {
    const field = form.getByLabel(label, { exact: true });
    if (await field.evaluate((element) => element.tagName === "SELECT")) await field.selectOption(value);
    else await field.fill(value);
  }
  await form.locator("button").click();
  if (asks) await page.click(`dialog button:has-text("${title}")`);
  await shows(page, `${title}: done`, "#notice");
  return form;
}

export async function administersAccounts(page) {
  await show(page, "lists/accounts", "Accounts");
  await page.click("summary:has-text('Change')");
  const account = page.locator("form[aria-label='Set account']");
  await account.getByLabel("Account", { exact: true }).fill("biology");
  await account.locator("button").click();
  await shows(page, "biology");
  const limits = page.locator("form[aria-label='Set user or limits of an account']");
  await limits.getByLabel("Account", { exact: true }).fill("biology");
  await limits.getByLabel("Running jobs").fill("lots");
  await limits.locator("button").click();
  await limits.locator("output:has-text('expected a number')").waitFor();
  await limits.getByLabel("Running jobs").fill("3");
  await limits.locator("button").click();
  await shows(page, "Set user or limits of an account: done", "#notice");
  assert.match(await shell("sacctmgr -n -P show assoc account=biology format=account,maxjobs"), /biology\|3/);
  const role = page.locator("form[aria-label='Set role']");
  await role.getByLabel("User").fill("nobody");
  await role.getByLabel("Role").selectOption("operator");
  await role.locator("button").click();
  await shows(page, "Set the role of nobody to operator?", "dialog");
  await page.click("dialog button:has-text('Back')");
  await show(page, "lists/reservations", "Reservations");
  await page.click("summary:has-text('Change')");
  const removal = page.locator("form[aria-label='Remove reservation']");
  await removal.getByLabel("Name").fill("to-remove");
  await removal.locator("button").click();
  await page.click("dialog button:has-text('Remove reservation')");
  await shows(page, "Remove reservation: done", "#notice");
  assert.doesNotMatch(await shell("scontrol show reservation"), /to-remove/);
}

/** Nodes are named as for `scontrol`; what was said of a change goes when the next is refused. */
export async function administersNodes(page) {
  const states = async () => (await shell("sinfo -h -N -o %N=%T")).trim().split("\n").map((line) => line.trim());
  await show(page, "overview", "Overview");
  await page.click("summary:has-text('Change')");
  const list = { "Nodes, as cpu[1-4]": "node[1-2]" };
  await send(page, "Drain", { ...list, Reason: "by the page" }, true);
  for (const line of await states()) assert.match(line, /=dr/);
  await send(page, "Resume", list, true);
  for (const line of await states()) assert.doesNotMatch(line, /=dr/);
  const resume = page.locator("form[aria-label='Resume']");
  await resume.getByLabel("Nodes").fill("node[1-");
  await resume.locator("button").click();
  await page.click('dialog button:has-text("Resume")');
  await resume.locator("output:has-text('node[1-')").waitFor();
  assert.equal(await page.innerText("#notice"), "", "it was not done");
  await showForms(page, "reservations", "Reservations");
  await send(page, "Create reservation", { Name: "by-range", Minutes: "60", "Nodes, or all": "node[1,2]", Users: "root", Kind: "ignore_jobs" });
  assert.match(await shell("scontrol show reservation by-range"), /Nodes=node\[1-2\]/);
  await send(page, "Remove reservation", { Name: "by-range" }, true);
}

export async function administersProjects(page) {
  await showForms(page, "projects", "Projects");
  await send(page, "Create project", { Name: "zeus" });
  await shows(page, "zeus");
  await send(page, "Set member", { Project: "zeus", User: "nobody", Role: "manager" });
  await shows(page, "nobody (manager)");
  await send(page, "Remove member", { Project: "zeus", User: "nobody" }, true);
  await lacks(page, "nobody (manager)");
  const secret = "first line\nsecond-line-of-a-secret";
  await showForms(page, "secrets", "Secrets");
  await send(page, "Set secret", { Project: "zeus", Name: "API_KEY", Value: secret });
  await show(page, "lists/secrets?project=zeus", "Secrets");
  await shows(page, "API_KEY");
  assert.ok(!(await page.content()).includes("second-line-of-a-secret"), "a secret's value is shown nowhere");
  await page.click("summary:has-text('Change')");
  await send(page, "Remove secret", { Project: "zeus", Name: "API_KEY" }, true);
  await lacks(page, "API_KEY");
  await showForms(page, "projects", "Projects");
  await send(page, "Remove project", { Name: "zeus" }, true);
  await lacks(page, "zeus");
}

export async function administersVolumes(page) {
  await showForms(page, "volumes", "Volumes");
  await send(page, "Create volume", { Name: "by-the-page", In: "node", "Node or shared folder": "node1" });
  await shows(page, "by-the-page");
  await send(page, "Delete volume", { Name: "by-the-page" }, true);
  await lacks(page, "by-the-page");
}

export async function administersTokens(browser, page) {
  await showForms(page, "tokens", "Tokens");
  const made = await send(page, "Make token", { User: "nobody", "Token's name": "by-the-page" });
  const token = /shown once: (\S+)/.exec(await made.locator("output").innerText())[1];
  const context = await browser.newContext({ locale: "en-GB" });
  try {
    const other = await newPage(context);
    const tab = await newPage(context);
    await tab.goto(`${new URL(page.url()).origin}/`);
    await tab.waitForSelector("#token");
    await signIn(other, token);
    // The other tab has the same session.
    await tab.waitForSelector("header nav");
    assert.match(await other.innerText(".who"), /^nobody \(user\)/);
    await send(page, "Revoke token", { "Token's name": "by-the-page", User: "nobody" }, true);
    // The page of a session that is over asks for a token again, without being touched.
    await other.waitForSelector("#token");
  } finally {
    await context.close();
  }
}
