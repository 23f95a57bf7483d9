// One job: what it asked for and was given, why it waits or why it ended, what it uses, its place in time, its output; and the changes
// to it.

import { get, post } from "./api.js";
import { confirmed, h, notice, table } from "./dom.js";
import { Explainer } from "./explainer.js";
import { bytes, duration, elapsed, time } from "./format.js";
import { gantt } from "./gantt.js";
import { sentence } from "./job_text.js";
import { Output } from "./job_output.js";
import { resources } from "./job_use.js";
import { LOOKS_ONLY } from "./rights.js";
import { arrayAddress, jobAddress } from "./router.js";

/** How often the output and the use are fetched. */
const INTERVAL_MS = 5_000;
const HOUR = 3_600_000;
/** Nodes that are named with a shell on each. */
const SHELL_NODES_MAX = 32;
/** An explanation is work for the scheduler: it follows the queue no more often than this. */
const CHANGE_MS = 2_000;

/** Reasons of jobs that wait until they are released, in the server's words. */
const HELD = /^JobHeld|requeued held$|in held state$/;
const isHeld = (job) => job.waiting && HELD.test(job.reason);
/** The row stands for the tasks of an array that wait, and its number for all of them: `14_[16-23]`. */
const isArray = (job) => job.shown.includes("_[");
/** `14_3`, `14_[16-23]` */
const OF_ARRAY = /^(\d+)_/;

/** `ask` says what happens to a job, `askEnded` what happens to one that has ended, `askArray` what happens to a row of several tasks where that is more. */
const CHANGES = [
  { name: "cancel", title: "Cancel", fits: (job) => !job.ended, ask: "The job ends, and what it has not saved is lost.",
    askArray: "This is for all tasks of the array, also those that run: they end, and what they have not saved is lost." },
  { name: "hold", title: "Hold", fits: (job) => job.waiting && !isHeld(job), ask: "The job does not start until it is released." },
  { name: "release", title: "Release", fits: isHeld, ask: "The job may start." },
  { name: "requeue", title: "Requeue", fits: (job) => !job.waiting && !job.run, ask: "The job ends here and waits again from its beginning.",
    askEnded: "The job waits again, and starts from its beginning." },
];

export function jobView(route, profile) {
  const name = route.parts[0] ?? "";
  const facts = h("div", {}, h("p", { role: "status" }, "Loading…"));
  const use = h("section");
  const place = new Place(() => page.job.id);
  const attempts = folded("Attempts", async () => attemptTable((await get(`jobs/${page.name}/attempts`)).attempts));
  const written = h("div");
  const text = folded("Script", async () => preformatted("Script", (await get(`jobs/${page.name}/script`)).text));
  const rest = h("div", { hidden: true }, use, place.element, written, attempts, text);
  const element = h("section", {}, facts, rest);
  let output = null;
  let outputOf = null;
  let page = null;
  let loads = [];
  let drawn = "";
  let drawnUse = "";
  let due = null;

  const load = async () => {
    page = await get(`jobs/${encodeURIComponent(name)}`);
    // What is as it was keeps its elements, and the focus that one of them may have.
    const content = JSON.stringify(page);
    if (content !== drawn) facts.replaceChildren(...parts(page, profile, load));
    drawn = content;
    drawUse();
    // A task that waited gets a record of its own, and another number, when it starts.
    if (outputOf !== page.job.id) {
      outputOf = page.job.id;
      output = new Output(outputOf);
      written.replaceChildren(output.element);
    }
    rest.hidden = false;
    output.element.hidden = !page.may_read || page.job.waiting || !page.job.start;
    text.hidden = !page.may_read || page.job.run;
    place.element.hidden = page.job.ended;
  };
  /** There is no such job, or it is no name of one: that is all there is to say. */
  const loadFirst = () => load().then(loadLive, (error) => {
    if (error.status !== 400 && error.status !== 404) throw error;
    element.replaceChildren(h("h1", {}, "Job"), h("p", { class: "error", role: "alert" }, error.message));
  });
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
    const { usage = [] } = await get(`jobs/${page.name}/usage`);
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
    title: `Job ${name}`,
    element,
    ready: loadFirst(),
    // A job that has left the server's memory is as it is, whatever happens to others.
    update: (what) => what.jobs && !page?.is_final && later(),
    close: () => {
      clearInterval(live);
      clearTimeout(due);
      place.close();
    },
  };
}

function parts(page, profile, reload) {
  const { job, end } = page;
  const changes = CHANGES.filter((change) => page.may_manage && change.fits(job));
  return [
    h("h1", {}, `Job ${job.shown} `, h("span", { class: "state" }, job.state.toLowerCase())),
    h("p", {}, job.name),
    changes.length > 0 && (profile.looks_only ? h("p", { class: "hint" }, LOOKS_ONLY)
      : h("p", { class: "buttons" }, changes.map((change) => button(page, change, reload)))),
    page.is_final && page.may_read && !job.run && h("p", { class: "hint" }, "It has left the server's memory and cannot be requeued: submit it again."),
    page.may_enter && !profile.looks_only && shells(page),
    section("Why it ended", end.why),
    end.used.length > 0 && table("What it used", ["What", "Used", "Of"], end.used.map((one) => [one.what, one.used, one.of ?? "no limit"])),
    section("Why it waits", page.explanation, page.named),
    section("Attempts before", end.earlier),
    definitions(page),
    page.steps.length > 0 && table("Steps", ["Step", "Name", "State", "Exit code", "Tasks", "Peak of memory", "Start", "End"],
      page.steps.map((step) => [step.id, step.name, step.state.toLowerCase(), step.end ? `${step.exit_code}:${step.exit_signal}` : "–", step.tasks,
        step.memory_peak ? bytes(step.memory_peak) : "–", time(step.start), time(step.end)])),
  ].filter(Boolean);
}

/** Sentences under a heading; `named`: the jobs that they name. */
function section(title, lines, named = []) {
  return lines.length > 0 && h("section", {}, h("h2", {}, title), h("ul", {}, lines.map((line) => h("li", {}, sentence(line, named)))));
}

/** A shell on each node: the place of the node in the allocation is its rank. */
function shells(page) {
  const open = (rank, words) => h("a", { href: `/shell?job=${encodeURIComponent(page.name)}&rank=${rank}`, target: "_blank", rel: "noopener" }, words);
  const nodes = page.allocation.slice(0, SHELL_NODES_MAX);
  if (page.allocation.length < 2) return h("p", { class: "buttons" }, open(0, "Shell in a new tab"));
  const more = page.allocation.length - nodes.length;
  return h("p", { class: "buttons" }, "Shell in a new tab: ", nodes.map((part, rank) => open(rank, `on ${part.node}`)), more > 0 && ` and ${more} more nodes`);
}

function button(page, change, reload) {
  const { job } = page;
  const click = async () => {
    const ask = (isArray(job) && change.askArray) || (job.ended && change.askEnded) || change.ask;
    if (!await confirmed(`${change.title} job ${job.shown} (${job.name})? ${ask}`, change.title)) return;
    try {
      await post(`jobs/${page.name}/${change.name}`);
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
  const [, array] = OF_ARRAY.exec(job.shown) ?? [];
  const entries = [
    ["User", job.user], ["Account", job.account], ["Partition", job.partition], ["QOS", job.qos],
    ["Priority", job.priority], ["Submitted", time(job.submit)],
    [job.waiting ? "Expected start" : "Started", time(job.start)],
    [job.ended ? "Ended" : "Ends by its limit", time(job.end)],
    ["Has run", elapsed(job)], ["Time limit", duration(job.limit_s)],
    [job.waiting ? "Counts as" : "Has", page.tres.map(resource).join(", ")],
    ["Language", job.run ? "dstack" : "Slurm"],
    ["Array", array && h("a", { href: arrayAddress(array) }, array)],
    ["Dependency", page.dependency], ["Comment", page.comment], ["Restarts", page.restarts || null],
    ["Exit code", job.ended ? `${page.exit_code}:${page.exit_signal}` : null],
    ["Requests", job.service && h("a", { href: job.service }, job.service)],
  ];
  const entry = (name, value, look) => h("div", { class: look }, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "facts" },
    entries.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => entry(name, value)),
    page.submit_line && entry("Submitted as", h("code", {}, page.submit_line), "whole-line"));
}

/** A part that is fetched when somebody opens it, and anew each time. */
function folded(title, load) {
  const content = h("div");
  const open = async (event) => {
    if (!event.target.open) return;
    if (!content.firstChild) content.replaceChildren(h("p", { role: "status" }, "Loading…"));
    try {
      content.replaceChildren(await load());
    } catch (error) {
      content.replaceChildren(h("p", { class: "error" }, error.message));
    }
  };
  return h("details", { ontoggle: open }, h("summary", {}, title), content);
}

const preformatted = (title, text) => h("pre", { tabindex: 0, role: "region", "aria-label": title }, text);

function attemptTable(attempts) {
  if (attempts.length === 0) return h("p", {}, "It has not started.");
  return table("Attempts", ["Attempt", "Task", "State", "Start", "End", "Nodes", "Exit code"], attempts.map((one) => [
    one.attempt, one.task === undefined ? "–" : h("a", { href: jobAddress(one.job) }, one.task), one.state.toLowerCase(), time(one.start), time(one.end), one.nodes || "–", one.end ? `${one.exit_code}:${one.exit_signal}` : "–",
  ]));
}

/** The job among others on its nodes, from now to a while after its end. */
class Place {
  #id;
  #explainer = new Explainer();
  #drawing = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline of its nodes" });
  element;

  /** `id`: the number of its record now. */
  constructor(id) {
    const content = h("div", {}, this.#explainer.element, this.#drawing);
    this.element = folded("Its place in the timeline", async () => {
      this.#id = id();
      this.#draw(await get(`timeline?job=${this.#id}`));
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
    this.#drawing.replaceChildren(gantt(answer, range, (text, job) => this.#explainer.show(text, job), this.#id, this.element.clientWidth));
  }

  close() {
    this.#explainer.close();
  }
}
