// The web page, used as a person uses it: by the cluster's own user, with real data.

import assert from "node:assert/strict";
import { administersAccounts, administersNodes, administersProjects, administersTokens, administersVolumes } from "./administration.mjs";
import { MARKUP, ask, check, isAccessible, isSound, newPage, run, settings, shell, show, shows, signIn } from "./harness.mjs";
import { mapOfAThousandNodes } from "./large_map.mjs";
import { hangs, leftOpen, loadedTooEarly } from "./left_open.mjs";
import { queueOfTenThousand } from "./long_queue.mjs";
import { jobsShareANode, timelineFillsItsRoom, usersHaveColoursOfTheirOwn } from "./timeline.mjs";
import { twoTabs } from "./two_tabs.mjs";

/** How many cells of the map such elements have: neighbours in the same state are one element. */
const cells = (page, which) => page.evaluate((selector) => [...document.querySelectorAll(selector)]
  .reduce((sum, element) => sum + Number(/cells-(\d)/.exec(element.className)[1]), 0), `.map .gpu${which}`);

async function press(page, button, confirm) {
  await page.click(`main button:has-text("${button}")`);
  await page.click(`dialog button:has-text("${confirm ?? button}")`);
}

/** Views with what must be seen in each. */
function views(job) {
  return [
    ["overview", "Overview", async (page) => {
      await page.waitForSelector(`.gpu.busy[href="#/job/${job}"]`);
      assert.deepEqual([await cells(page, ""), await cells(page, `[href="#/job/${job}"]`)], [16, 2], "a cell for each GPU");
      await shows(page, "Queue by partition");
    }],
    ["queue", "Queue", (page) => page.waitForSelector(`.list-row a[href="#/job/${job}"]`)],
    [`job/${job}`, `Job ${job}`, async (page) => {
      await shows(page, MARKUP);
      await shows(page, "Asked for, limits and use");
      await shows(page, "Limits, and use now");
      await page.click("summary:has-text('Its place')");
      await page.waitForSelector(`details svg a[href="#/job/${job}"]`);
      await page.click("summary:has-text('Attempts')");
      await shows(page, "running", "details table");
      assert.equal(await page.locator("details table tbody td").last().innerText(), "–", "it has no exit code yet");
      await shows(page, "the last line", ".log");
    }],
    ["timeline", "Timeline", async (page) => {
      await page.waitForSelector("svg .bar");
      await page.waitForSelector("svg .reserved");
      await page.locator("svg a[tabindex='0']").focus();
      await page.keyboard.press("ArrowRight");
      await shows(page, "Job ", ".explain");
    }],
    ["submit", "Submit", (page) => shows(page, "Would start", "#checked")],
    ["usage", "Usage", async (page) => {
      await page.waitForSelector("button:has-text('As CSV')");
      await page.click("button:has-text('By month')");
      const axis = page.locator(".axis span").first();
      await axis.waitFor();
      assert.match(await axis.innerText(), /^\d{4}-\d\d$/, "months are named, and not their first moments");
    }],
    ["lists/events", "Events", (page) => page.waitForSelector("tbody tr")],
    ["lists/audit", "Audit", async (page) => {
      await page.waitForSelector("tbody tr");
      assert.deepEqual(await page.locator("th").allInnerTexts(), ["Time", "Who", "What", "Kind", "Name", "Details"]);
      assert.doesNotMatch(await page.innerText("tbody"), /=|\[object/, "nothing of how the server writes it");
    }],
    ["lists/shares", "Shares", async (page) => {
      await page.waitForSelector("tbody tr");
      assert.doesNotMatch(await page.innerText("main"), /\d\.\d{4}|Gres|Rows/);
    }],
    ["lists/nodes", "Nodes", (page) => shows(page, "of 8 h100")],
    ["lists/fleets", "Fleets", (page) => shows(page, "node[1-2]")],
    ["lists/backends", "Backends", (page) => shows(page, "Change")],
    ["lists/volumes", "Volumes", (page) => shows(page, "kept")],
    ["lists/secrets", "Secrets", (page) => shows(page, "api_key")],
    ["lists/licenses", "Licenses", (page) => shows(page, "matlab")],
    ["lists/reservations", "Reservations", async (page) => {
      await shows(page, "weekly-fix");
      assert.doesNotMatch(await page.innerText("tbody"), /only=/);
    }],
    ["lists/accounts", "Accounts", (page) => shows(page, MARKUP)],
    ["lists/projects", "Projects", (page) => shows(page, "atlas")],
    ["lists/tokens", "Tokens", (page) => page.waitForSelector("summary")],
    ["lists/agents", "Agents", (page) => page.waitForSelector("tbody tr")],
  ];
}

/** The map does not wait for who is signed in, nor for the queue, which may be long. */
async function asksForTheMapFirst(page) {
  await show(page, "overview", "Overview");
  // What the page asks for before it is loaded again is not meant.
  await shows(page, "Queue by partition");
  const asked = [];
  const note = (request) => {
    if (request.isNavigationRequest()) asked.length = 0;
    asked.push(new URL(request.url()).pathname);
  };
  page.on("request", note);
  await page.reload();
  await page.waitForSelector(".map .node");
  await shows(page, "Queue by partition");
  page.off("request", note);
  const answers = asked.filter((path) => path.startsWith("/api/web/"));
  assert.deepEqual(answers.slice(0, 2), ["/api/web/session", "/api/web/nodes"]);
  assert.equal(asked.filter((path) => path === "/api/web/session").length, 1);
}

async function submitsWatchesAndCancels(page) {
  await show(page, "submit", "Submit");
  const wrong = "#!/bin/sh\n#SBATCH --nodes=lots\n#SBATCH --tme=1\n";
  await page.fill("#script", wrong);
  for (const place of ["Line 2, column 9", "Line 3, column 9"]) await shows(page, place, "#checked .error");
  assert.equal((await page.locator(".numbers").innerText()).trim(), "1\n2\n3\n4", "lines have numbers to be found by");
  await page.click("#checked button:has-text('Line 3')");
  const selected = await page.evaluate(() => {
    const field = document.activeElement;
    return field.value.slice(field.selectionStart, field.selectionEnd);
  });
  assert.equal(selected, "#SBATCH --tme=1");
  await show(page, "lists/nodes", "Nodes");
  await show(page, "submit", "Submit");
  assert.equal(await page.inputValue("#script"), wrong, "what was typed is there again");
  await page.waitForSelector("#checked .error");
  assert.ok(await page.locator("form button[type=submit]").isDisabled(), "what is wrong is not sent");
  await page.fill("#script", "#!/bin/sh\n#SBATCH -J by-the-page -t 10 -o /dev/null --gres=gpu:1\nsleep 600\n");
  await shows(page, "with 1 CPU and 1 GPU.", "#checked");
  await page.click("form button[type=submit]:not([disabled])");
  await shows(page, "Submitted job", "#notice");
  await shows(page, "running", "main h1");
  const id = /job\/(\d+)/.exec(page.url())[1];
  await press(page, "Cancel");
  await shows(page, "cancelled", "main h1");
  assert.match(await shell(`squeue -h -t all -j ${id} -o %T`), /CANCELLED|COMPLETING/);
  await shows(page, "It was cancelled by");
  await show(page, "queue?state=ended", "Queue");
  await page.waitForSelector(`.list-row a[href="#/job/${id}"]`);
}

async function holdsAndReleases(page, waits) {
  await show(page, `job/${waits}`, `Job ${waits}`);
  await shows(page, "Why it waits");
  await shows(page, "On them: job");
  await page.waitForSelector("main li a[href^='#/job/']");
  await press(page, "Hold");
  await page.waitForSelector("main button:has-text('Release')");
  await press(page, "Release");
  await page.waitForSelector("main button:has-text('Hold')");
}

/** The question names one task: the others wait on. */
async function cancelsOneTask(page) {
  const id = (await shell("sbatch --parsable -H --array=0-1 -o /dev/null --wrap true")).trim();
  await show(page, `job/${id}_1`, `Job ${id}_1`);
  await press(page, "Cancel");
  await shows(page, "cancelled", "main h1");
  assert.equal((await shell(`squeue -h -r -j ${id} -o %i`)).trim(), `${id}_0`);
  await page.click(`main a[href="#/array/${id}"]`);
  await page.waitForSelector(`main h1:has-text("Array ${id}")`);
  await page.waitForSelector(`main a[href="#/job/${id}"]`);
  await page.waitForSelector("dt:has-text('pending')");
  await isAccessible(page, "array");
  await show(page, `job/${id}`, `Job ${id}_[0]`);
  await press(page, "Cancel");
  await show(page, "job/12x", "Job");
  await shows(page, "names no job", "main .error");
}

/** What is said of a job that has ended is about one that has. */
async function speaksOfAnEndedJob(page) {
  const id = (await shell("sbatch --parsable -o /dev/null --wrap true")).trim();
  await show(page, `job/${id}`, `Job ${id}`);
  await shows(page, "completed", "main h1");
  await page.click("main button:has-text('Requeue')");
  await shows(page, "The job waits again", "dialog");
  assert.doesNotMatch(await page.innerText("dialog"), /ends here/);
  await page.click("dialog button:has-text('Back')");
  const lasted = await page.evaluate(async () => {
    const { elapsed } = await import(document.querySelector("script[src*='/app.js']").src.replace("app.js", "format.js"));
    return [[1_600, 2_100], [1_100, 1_900]].map(([start, end]) => elapsed({ start, end, ended: true, waiting: false }));
  });
  assert.deepEqual(lasted, ["00:01", "00:00"], "as sacct counts");
  // The books have it longer than the server's memory.
  const answer = await page.evaluate((job) => fetch(`/api/web/jobs/${job}`).then((found) => found.json()), id);
  const booked = { ...answer, is_final: true, may_manage: false };
  await page.route(`**/api/web/jobs/${id}`, (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify(booked) }));
  await show(page, "queue", "Queue");
  await show(page, `job/${id}`, `Job ${id}`);
  await shows(page, "cannot be requeued: submit it again");
  assert.equal(await page.locator("main button:has-text('Requeue')").count(), 0);
  await page.unroute(`**/api/web/jobs/${id}`);
}

async function stopsAService(page) {
  await show(page, "submit", "Submit");
  await page.fill("#script", "type: service\nname: shop\nport: 8000\ncommands: [sleep 600]\nresources: {cpu: 1, memory: 16MB.., disk: 0GB..}\n");
  await page.click("form button[type=submit]:not([disabled])");
  await shows(page, "Submitted job", "#notice");
  await show(page, "lists/services", "Services");
  await page.waitForSelector("a[href='/proxy/services/main/shop/']");
  await isAccessible(page, "lists-services");
  await page.click("summary:has-text('Change')");
  const stop = page.locator("form[aria-label='Stop service']");
  await stop.getByLabel("Service").fill("none");
  await stop.locator("button").click();
  await stop.locator("output:has-text('there is no such service')").waitFor();
  await stop.getByLabel("Service").fill("shop");
  await stop.locator("button").click();
  await page.click("dialog button:has-text('Stop service')");
  await shows(page, "There are none.");
}

async function opensAShell(context, page, job) {
  await show(page, `job/${job}`, `Job ${job}`);
  const [terminal] = await Promise.all([context.waitForEvent("page"), page.click("a:has-text('Shell')")]);
  const faults = [];
  terminal.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  await terminal.waitForSelector(".xterm-rows");
  await terminal.waitForFunction(() => document.getElementById("notice").textContent === "");
  await terminal.keyboard.type("echo sum-$((40+2)) of $SLURM_JOB_ID\n");
  await terminal.waitForFunction((words) => document.querySelector(".xterm-rows").innerText.replace(/\u00a0/g, " ").includes(words), `sum-42 of ${job}`);
  await terminal.keyboard.type("printf '\\033[38;2;200;40;40mcolour\\033[0m\\n'\n");
  await terminal.waitForFunction(() => [...document.querySelectorAll(".xterm-rows span")].some((span) => span.textContent === "colour" && span.style.color !== ""));
  assert.deepEqual(faults, [], "the policy takes the terminal's styles");
  const room = await terminal.evaluate(() => {
    const row = document.querySelector(".xterm-rows > div");
    return row.getBoundingClientRect().height / Number.parseFloat(getComputedStyle(row).fontSize);
  });
  assert.ok(room > 1.25, `a row is ${room} of the font: underscores are below the letters`);
  await isAccessible(terminal, "shell");
  await terminal.locator(".xterm-helper-textarea").focus();
  await terminal.keyboard.press("Alt+End");
  assert.equal(await terminal.evaluate(() => document.activeElement.tagName), "A", "the keyboard leaves the terminal");
  await terminal.locator(".xterm-helper-textarea").focus();
  await terminal.keyboard.type("exit 5\n");
  await shows(terminal, "exit code 5", "#notice");
  await terminal.close();
}

async function findsInTheOutput(page, job) {
  await show(page, `job/${job}`, `Job ${job}`);
  await shows(page, "the last line", ".log");
  await page.fill("#log-search", "LAST");
  await page.waitForFunction(() => document.querySelector(".log").textContent.trim().split("\n").length === 1);
  assert.equal(await page.locator(".log mark").innerText(), "last");
  await shows(page, "1 line of the whole output");
  await saysWhatWasSearched(page);
  await readsAsATerminal(page);
}

/** The end of a long output alone is loaded: a line before it is found when more is asked for. */
async function saysWhatWasSearched(page) {
  const id = (await shell("sbatch --parsable -o long-%j.txt --wrap 'echo the-first-line; seq 20000'")).trim();
  await show(page, `job/${id}`, `Job ${id}`);
  await shows(page, "completed", "main h1");
  await shows(page, "20000", ".log");
  await page.fill("#log-search", "the-first-line");
  await shows(page, "0 lines of the last 64 KiB");
  await page.click("button:has-text('Search the last 4.0 MiB')");
  await shows(page, "1 line of the whole output");
}

/** A progress bar is one line, colours are none, and what is selected stays so while more is written. */
async function readsAsATerminal(page) {
  const found = await page.evaluate(async () => {
    const { goOn, readable } = await import(document.querySelector("script[src*='/app.js']").src.replace("app.js", "log_text.js"));
    const log = document.querySelector(".log");
    const node = document.createTextNode("");
    log.replaceChildren(node);
    const lines = (from, to) => Array.from({ length: to - from }, (_, index) => `line ${from + index}\n`).join("");
    const says = [];
    const select = document.getSelection();
    const step = (text, isKept) => {
      goOn(node, text, isKept);
      const isHere = select.anchorNode === node;
      says.push([node.data === text, isHere ? node.data.slice(select.anchorOffset, select.focusOffset) : ""]);
    };
    step(`${lines(0, 50)}12 %`, false);
    const at = node.data.indexOf("line 40");
    select.setBaseAndExtent(node, at, node, at + 7);
    step(`${lines(0, 50)}13 % and more`, false);
    step(lines(0, 60), false);
    step(lines(30, 70), false);
    step(lines(20, 80), false);
    step(lines(35, 90), true);
    const kept = node.data === lines(20, 90);
    step("something else\n", false);
    const read = ["\x1b[31mred\x1b[0m\n", "  1 %\r 50 %\r100 %\nnext", "long line\r\x1b[Kshort", "ends\r\nso\r\n"].map(readable);
    // As much as a page shows: copied for each part of the line it would take hours.
    const long = readable("x".repeat(2e6) + "\rb".repeat(1e6));
    return { says, kept, read, long: [long.length, long.slice(0, 3)] };
  });
  const same = [true, "line 40"];
  assert.deepEqual(found.says, [[true, ""], same, same, same, same, [false, "line 40"], [true, ""]]);
  assert.ok(found.kept, "what somebody reads stays");
  assert.deepEqual(found.read, ["red\n", "100 %\nnext", "short", "ends\nso\n"]);
  assert.deepEqual(found.long, [2e6, "bxx"]);
}

/** Jobs come and go while somebody points at one: a click is on the job that it began on, and so is the keyboard. */
async function pointsAtTheSameJob(page, job) {
  const submit = async () => (await shell("sbatch --parsable -H -J on-top -o /dev/null --wrap true")).trim();
  await show(page, "queue?sort=id&desc=1", "Queue");
  await page.hover(`.list-row a[href="#/job/${job}"]`);
  await page.mouse.down();
  const first = await submit();
  await page.waitForTimeout(1_500);
  await page.mouse.up();
  await page.waitForSelector(`main h1:has-text("Job ${job}")`);
  await page.goBack();
  await page.waitForSelector(`.list-row a[href="#/job/${first}"]`);
  await page.locator(".list").focus();
  await page.keyboard.press("Home");
  await page.waitForSelector(`.list-row.active a[href="#/job/${first}"]`);
  // A menu that opens may take the button's release: the rows go on all the same.
  for (const event of ["pointerdown", "contextmenu"]) await page.dispatchEvent(`.list-row a[href="#/job/${first}"]`, event);
  const next = await submit();
  await page.waitForSelector(`.list-row a[href="#/job/${next}"]`);
  await page.waitForSelector(`.list-row.active a[href="#/job/${first}"]`);
  await page.keyboard.press("Enter");
  await page.waitForSelector(`main h1:has-text("Job ${first}")`);
}

/** The server stops, and comes back: the page says so, and goes on by itself. */
async function outlivesTheServer(page) {
  await show(page, "queue?q=wide", "Queue");
  await page.waitForSelector(".list-row");
  await ask("lose");
  await shows(page, "does not answer", "#notice");
  await show(page, "lists/nodes", "Nodes");
  await shows(page, "does not answer", "main > .error");
  await ask("return");
  await shows(page, "of 8 h100");
  assert.equal(await page.locator("main .error").count(), 0, "what was said of the lost server goes");
  await show(page, "queue?q=wide", "Queue");
  const id = (await shell("sbatch --parsable -H -J wide-again -o /dev/null --wrap true")).trim();
  await page.waitForSelector(`.list-row a[href="#/job/${id}"]`);
  await page.waitForFunction(() => document.getElementById("notice").textContent === "");
  assert.equal(await page.inputValue("#filter"), "wide", "the address is kept");
}

run(async (browser) => {
  const { job, waits } = await ask("jobs");
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "UTC" });
  const page = await newPage(context);
  await check("a wrong token is refused, a right one signs in", async () => {
    await page.goto(`${settings.base}/`);
    await page.waitForSelector("#token");
    await isAccessible(page, "sign-in");
    await page.fill("#token", "0".repeat(64));
    await page.click("button[type=submit]");
    await shows(page, "is not valid here, or has expired", ".sign-in .error");
    const asked = [];
    const note = (request) => asked.push(new URL(request.url()).pathname);
    page.on("request", note);
    await page.reload();
    await page.waitForSelector("#token");
    await page.waitForLoadState("networkidle");
    page.off("request", note);
    assert.deepEqual(asked.filter((path) => path.startsWith("/api/web/")), ["/api/web/oidc"], "nothing is asked for that would be refused");
    await signIn(page);
    await page.waitForSelector("main h1:has-text('Overview')");
  });
  for (const [address, heading, look] of views(job)) {
    await check(address, async () => {
      await show(page, address, heading);
      await look(page);
      await isSound(page);
      await isAccessible(page, address.replaceAll("/", "-"));
    });
  }
  await check("a visit asks for the map at once, and for it alone", () => asksForTheMapFirst(page));
  await check("a run is checked, submitted, watched and cancelled", () => submitsWatchesAndCancels(page));
  await check("a job that waits is explained, held and released", () => holdsAndReleases(page, waits));
  await check("one task of an array is cancelled alone", () => cancelsOneTask(page));
  await check("a job that has ended is requeued in words for it", () => speaksOfAnEndedJob(page));
  await check("jobs that share a node are drawn below each other", () => jobsShareANode(page));
  await check("a timeline fills its room and cuts nothing off", () => timelineFillsItsRoom(page));
  await check("users have colours of their own", () => usersHaveColoursOfTheirOwn(page));
  await check("lines are found in the output", () => findsInTheOutput(page, job));
  await check("accounts, limits and reservations are changed", () => administersAccounts(page));
  await check("nodes are drained, resumed and reserved by ranges", () => administersNodes(page));
  await check("projects, members and secrets are changed", () => administersProjects(page));
  await check("a volume is made and deleted", () => administersVolumes(page));
  await check("a token is made, signs in, and is revoked", () => administersTokens(browser, page));
  await check("a service is listed and stopped", () => stopsAService(page));
  await check("a shell in the job", () => opensAShell(context, page, job));
  await check("filters are in the address, and the keyboard opens a job", async () => {
    await show(page, `queue?q=${job}&mine=1`, "Queue");
    assert.ok(await page.isChecked("#mine"));
    await page.waitForSelector(".list-row");
    await page.locator(".list").focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForSelector(`main h1:has-text("Job ${job}")`);
  });
  await check("a click and the keyboard stay with a job while others come", () => pointsAtTheSameJob(page, job));
  await check("an address that means nothing does no harm", async () => {
    for (const address of ["queue?sort=id;DROP TABLE jobs&desc=x&state=%00", "job/1%27%20OR%201=1", "lists/constructor", "__proto__", "%E0%A4%A"]) {
      await page.goto(`${settings.base}/#/${address}`);
      await page.waitForSelector("main h1, main .error");
    }
    for (const [address, said] of [["nonsense", "nonsense: there is no such view"], ["__proto__", "__proto__: there is no such view"], ["lists/nonsense", "nonsense: there is no such list"]]) {
      await page.goto(`${settings.base}/#/${address}`);
      await shows(page, said, "main .error");
    }
    await isSound(page);
  });
  await check("ten thousand jobs", () => queueOfTenThousand(context));
  await check("a thousand nodes", () => mapOfAThousandNodes(context));
  await check("a page that is left open for a week, and hidden", () => leftOpen(context));
  await check("a server that hangs is told, and its return", () => hangs(context));
  await check("a page that is loaded before the server answers goes on", () => loadedTooEarly(context));
  await check("two tabs have one stream of changes", () => twoTabs(browser));
  await check("the page is sound after all of that", () => isSound(page));
  await check("a lost server, and its return", () => outlivesTheServer(page));
});
