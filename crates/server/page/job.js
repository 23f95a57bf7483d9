// One job: what it asked for and was given, why it waits, what it uses, its place in time, its output; and the changes to it.

import { get, post } from "./api.js";
import { confirmed, h, notice, table } from "./dom.js";
import { Explainer } from "./explainer.js";
import { bytes, duration, elapsed, time } from "./format.js";
import { gantt } from "./gantt.js";
import { Output } from "./job_output.js";
import { resources } from "./job_use.js";

/** How often the output and the use are fetched. */
const INTERVAL_MS = 5_000;
const HOUR = 3_600_000;
/** An explanation is work for the scheduler: it follows the queue no more often than this. */
const CHANGE_MS = 2_000;

/** Reasons of jobs that wait until they are released, in the server's words. */
const HELD = /^JobHeld|requeued held$|in held state$/;
const isHeld = (job) => job.waiting && HELD.test(job.reason);
/** The row stands for the tasks of an array that wait, and its number for all of them: `14_[16-23]`. */
const isArray = (job) => job.shown.includes("_[");

/** `ask` says what happens, `askArray` what happens to a row of several tasks where that is more. */
const CHANGES = [
  { name: "cancel", title: "Cancel", fits: (job) => !job.ended, ask: "The job ends, and what it has not saved is lost.",
    askArray: "This is for all tasks of the array, also those that run: they end, and what they have not saved is lost." },
  { name: "hold", title: "Hold", fits: (job) => job.waiting && !isHeld(job), ask: "The job does not start until it is released." },
  { name: "release", title: "Release", fits: isHeld, ask: "The job may start." },
  { name: "requeue", title: "Requeue", fits: (job) => !job.waiting && !job.run, ask: "The job ends here and waits again from its beginning." },
];

export function jobView(route) {
  const id = Number.parseInt(route.parts[0], 10);
  const facts = h("div");
  const use = h("section");
  const place = new Place(id);
  const attempts = folded("Attempts", async () => attemptTable((await get(`jobs/${id}/attempts`)).attempts));
  const output = new Output(id);
  const text = script(id);
  let page = null;
  let loads = [];
  let drawn = "";
  let drawnUse = "";
  let due = null;

  const load = async () => {
    page = await get(`jobs/${id}`);
    // What is as it was keeps its elements, and the focus that one of them may have.
    const content = JSON.stringify(page);
    if (content !== drawn) facts.replaceChildren(...parts(page, load));
    drawn = content;
    drawUse();
    output.element.hidden = !page.may_read || page.job.waiting;
    text.hidden = !page.may_read || page.job.run;
    place.element.hidden = page.job.ended;
  };
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      load().catch((error) => notice(error.message));
    }, CHANGE_MS);
  };
  const loadLive = async () => {
    if (!page || page.job.waiting || document.hidden) return;
    const isLive = !page.job.ended;
    await Promise.allSettled([
      page.may_read && (isLive || !output.isWhole) ? output.load(!isLive) : null,
      isLive ? loadUse() : null,
    ]);
  };
  const loadUse = async () => {
    const { usage = [] } = await get(`jobs/${id}/usage`);
    loads = usage.flatMap((job) => job.loads ?? []);
    drawUse();
  };
  const drawUse = () => {
    const content = JSON.stringify([page.request, page.allocation, loads]);
    if (content !== drawnUse) use.replaceChildren(...resources(page, loads));
    drawnUse = content;
  };
  const live = setInterval(loadLive, INTERVAL_MS);

  return {
    title: `Job ${id}`,
    element: h("section", {}, facts, use, place.element, output.element, attempts, text),
    ready: load().then(loadLive),
    update: (what) => what.jobs && later(),
    close: () => {
      clearInterval(live);
      clearTimeout(due);
      place.close();
    },
  };
}

function parts(page, reload) {
  const { job } = page;
  return [
    h("h1", {}, `Job ${job.shown} `, h("span", { class: "state" }, job.state.toLowerCase())),
    h("p", {}, job.name),
    (page.may_manage || page.may_enter) && h("p", { class: "buttons" },
      page.may_manage && CHANGES.filter((change) => change.fits(job)).map((change) => button(job, change, reload)),
      page.may_enter && h("a", { href: `/shell?job=${job.id}`, target: "_blank", rel: "noopener" }, "Shell in a new tab")),
    page.explanation.length > 0 && h("section", {}, h("h2", {}, "Why it waits"),
      h("ul", {}, page.explanation.map((line) => h("li", {}, line))),
      page.expected && h("p", {}, `Expected to start ${time(page.expected.start)} on ${page.expected.nodes.join(", ")}.`)),
    definitions(page),
    page.steps.length > 0 && table("Steps", ["Step", "Name", "Tasks", "Start", "End"],
      page.steps.map((step) => [step.id, step.name, step.tasks, time(step.start), time(step.end)])),
  ].filter(Boolean);
}

function button(job, change, reload) {
  const click = async () => {
    const ask = isArray(job) && change.askArray ? change.askArray : change.ask;
    if (!await confirmed(`${change.title} job ${job.shown} (${job.name})? ${ask}`, change.title)) return;
    try {
      await post(`jobs/${job.id}/${change.name}`);
      notice(`${change.title}: done`);
      await reload();
    } catch (error) {
      notice(error.message);
    }
  };
  return h("button", { type: "button", class: change.name === "cancel" && "danger", onclick: click }, change.title);
}

/** `cpu=4`, `mem=16 GiB`: memory comes in mebibytes. */
function resource([kind, amount]) {
  const isMemory = kind === "mem" || kind === "vmem";
  return `${kind}=${isMemory ? bytes(amount * 2 ** 20) : amount}`;
}

function definitions(page) {
  const { job } = page;
  const entries = [
    ["User", job.user], ["Account", job.account], ["Partition", job.partition], ["QOS", job.qos],
    ["Priority", job.priority], ["Submitted", time(job.submit)],
    [job.waiting ? "Expected start" : "Started", time(job.start)],
    [job.ended ? "Ended" : "Ends by its limit", time(job.end)],
    ["Has run", elapsed(job)], ["Time limit", duration(job.limit_s)],
    [job.waiting ? "Counts as" : "Has", page.tres.map(resource).join(", ")],
    ["Language", job.run ? "dstack" : "Slurm"],
    ["Dependency", page.dependency], ["Comment", page.comment], ["Restarts", page.restarts || null],
    ["Exit code", job.ended ? `${page.exit_code}:${page.exit_signal}` : null],
    ["Requests", job.service && h("a", { href: job.service }, job.service)], ["Submitted as", page.submit_line],
  ];
  return h("dl", { class: "facts" }, entries.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A part that is fetched when somebody opens it, and anew each time. */
function folded(title, load) {
  const content = h("div");
  const open = async (event) => {
    if (!event.target.open) return;
    try {
      content.replaceChildren(await load());
    } catch (error) {
      content.replaceChildren(h("p", { class: "error" }, error.message));
    }
  };
  return h("details", { ontoggle: open }, h("summary", {}, title), content);
}

function script(id) {
  const load = async () => h("pre", { tabindex: 0, role: "region", "aria-label": "Script" }, (await get(`jobs/${id}/script`)).text);
  const element = folded("Script", load);
  element.hidden = true;
  return element;
}

function attemptTable(attempts) {
  if (attempts.length === 0) return h("p", {}, "It has not started.");
  return table("Attempts", ["Attempt", "Task", "State", "Start", "End", "Nodes", "Exit code"], attempts.map((one) => [
    one.attempt, one.task ?? "–", one.state.toLowerCase(), time(one.start), time(one.end), one.nodes || "–", `${one.exit_code}:${one.exit_signal}`,
  ]));
}

/** The job among others on its nodes, from now to a while after its end. */
class Place {
  #id;
  #explainer = new Explainer();
  #drawing = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline of its nodes" });
  element;

  constructor(id) {
    this.#id = id;
    const content = h("div", {}, this.#explainer.element, this.#drawing);
    this.element = folded("Its place in the timeline", async () => {
      this.#draw(await get(`timeline?job=${id}`));
      return content;
    });
  }

  #draw(answer) {
    const own = answer.bars.filter((bar) => bar.job === this.#id);
    if (own.length === 0) {
      this.#drawing.replaceChildren("Where it will run is not known yet.");
      return;
    }
    const first = Math.min(answer.now, ...own.map((bar) => bar.start));
    const last = Math.max(answer.now + HOUR, ...own.map((bar) => bar.end ?? answer.now + 24 * HOUR));
    const margin = (last - first) / 10;
    const range = { from: first - margin, to: last + margin, now: answer.now };
    this.#drawing.replaceChildren(gantt(answer, range, (text, job) => this.#explainer.show(text, job)));
  }

  close() {
    this.#explainer.close();
  }
}
