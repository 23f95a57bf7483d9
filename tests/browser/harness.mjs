// What the tests of the page share: the browser, checks with names, accessibility, and questions to the program that started them.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

/** `{modules, chromium, base, token, shots}`, from the program that started this. */
export const settings = JSON.parse(process.env.SLUICE_BROWSER_TEST);

const require = createRequire(path.join(settings.modules, "index.js"));
const { chromium } = require("playwright-core");
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** How long something may take to come about; it is reached only where something is broken. */
export const TIMEOUT_MS = 30_000;
const ALL_MS = 150_000;

/** What a user writes that would be a script, if it were taken for one. */
export const MARKUP = "<img src=x onerror=window.hacked=1>";

/** A phone and a wide screen, light and dark. */
const LOOKS = [
  { name: "wide-light", width: 1500, height: 900, colorScheme: "light" },
  { name: "wide-dark", width: 1500, height: 900, colorScheme: "dark" },
  { name: "phone-light", width: 390, height: 800, colorScheme: "light" },
  { name: "phone-dark", width: 390, height: 800, colorScheme: "dark" },
];
const KEPT = new Set(["wide-light", "phone-dark"]);

const failed = [];

/** Runs a part of the tests; one that fails does not keep the others from running. */
export async function check(name, test) {
  const began = performance.now();
  try {
    await test();
    console.log(`ok ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (error) {
    failed.push(name);
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has the program that started this do something, and waits until it is done. */
export async function ask(words) {
  console.log(`@${words}`);
  const { value } = await answers.next();
  return JSON.parse(value);
}

/** What a line of a user's shell prints. */
export const shell = (line) => ask(`shell ${line}`);

export const launch = () => chromium.launch({ executablePath: settings.chromium, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** Runs the tests in a browser; ends the process. */
export async function run(tests) {
  setTimeout(() => {
    console.log("FAILED: it takes too long");
    process.exit(2);
  }, ALL_MS).unref();
  fs.mkdirSync(settings.shots, { recursive: true });
  const browser = await launch();
  try {
    await tests(browser);
  } finally {
    await browser.close();
  }
  console.log(failed.length ? `FAILED: ${failed.join(", ")}` : "all ok");
  process.exit(failed.length ? 1 : 0);
}

/** A page of a browser that is nobody's yet. What goes wrong in it is in `page.faults`. */
export async function newPage(context) {
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("console", (message) => {
    // A refused request is no fault of the page: what it does then is looked at.
    if (message.type() === "error" && !message.text().includes("Failed to load resource")) page.faults.push(message.text());
  });
  page.on("dialog", (dialog) => {
    page.faults.push(`a dialog of a script: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  return page;
}

export async function signIn(page, token = settings.token, base = settings.base) {
  await page.goto(`${base}/`);
  await page.fill("#token", token);
  await page.click("button[type=submit]");
  await page.waitForSelector("header nav");
}

/** Shows a view, and waits for its heading. */
export async function show(page, address, heading) {
  await page.goto(`${new URL(page.url()).origin}/#/${address}`);
  await page.waitForSelector(`main h1:has-text("${heading}")`);
}

/** Waits until the text of an element has this in it. */
export const shows = (page, wanted, selector = "main") =>
  page.waitForFunction(([place, words]) => document.querySelector(place)?.innerText.includes(words), [selector, wanted]);

/** Nothing that a user wrote has become part of the page, and nothing went wrong in it. */
export async function isSound(page) {
  assert.equal(await page.evaluate(() => window.hacked), undefined, "a script of a user's text ran");
  assert.equal(await page.locator("main img").count(), 0, "a user's text became an element");
  assert.deepEqual(page.faults, []);
}

/** Looks at a view on a phone and a wide screen, light and dark: nothing serious is in the way of anybody. Keeps pictures. */
export async function isAccessible(page, name) {
  const found = [];
  for (const look of LOOKS) {
    await page.setViewportSize({ width: look.width, height: look.height });
    await page.emulateMedia({ colorScheme: look.colorScheme });
    if (!await page.evaluate(() => "axe" in window)) await page.evaluate(AXE);
    const violations = await page.evaluate(async () => {
      const tags = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] };
      // The terminal has a form of its own for screen readers.
      const result = await window.axe.run({ exclude: [[".xterm"]] }, { runOnly: tags, resultTypes: ["violations"], preload: false });
      return result.violations.filter((one) => ["serious", "critical"].includes(one.impact))
        .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
    });
    found.push(...violations.map((one) => `${look.name}: ${one}`));
    const isWider = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth + 1);
    if (isWider) found.push(`${look.name}: the page is wider than the screen`);
    if (KEPT.has(look.name)) await page.screenshot({ path: path.join(settings.shots, `${name}-${look.name}.png`) });
  }
  await page.setViewportSize({ width: 1500, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
  assert.deepEqual(found, []);
}
