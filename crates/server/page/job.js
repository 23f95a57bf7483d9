// One job: what it asked for and was given, why it waits, what it uses, its output; and the changes to it.

import { get, log, post } from "./api.js";
import { chart } from "./chart.js";
import { confirmed, h, notice, table } from "./dom.js";
import { bytes, duration, elapsed, time } from "./format.js";

/** The part of an output that is shown, and how often that and the use are fetched. */
const LOG_BYTES = 65_536;
const INTERVAL_MS = 5_000;
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
  const use = h("div", { class: "charts" });
  const output = new Output(id);
  const text = script(id);
  let page = null;
  let drawn = "";
  let due = null;

  const load = async () => {
    page = await get(`jobs/${id}`);
    // What is as it was keeps its elements, and the focus that one of them may have.
    const content = JSON.stringify(page);
    if (content !== drawn) facts.replaceChildren(...parts(page, load));
    drawn = content;
    output.element.hidden = !page.may_read || page.job.waiting;
    text.hidden = !page.may_read || page.job.run;
  };
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      load().catch((error) => notice(error.message));
    }, CHANGE_MS);
  };
  const loadLive = async () => {
    if (!page || page.job.waiting) return;
    const isLive = !page.job.ended;
    await Promise.allSettled([
      page.may_read && (isLive || !output.isWhole) ? output.load(!isLive) : null,
      isLive ? get(`jobs/${id}/usage`).then((answer) => use.replaceChildren(...charts(answer.usage ?? []))) : null,
    ]);
  };
  const live = setInterval(loadLive, INTERVAL_MS);

  return {
    title: `Job ${id}`,
    element: h("section", {}, facts, use, output.element, text),
    ready: load().then(loadLive),
    update: (what) => what.jobs && later(),
    close: () => {
      clearInterval(live);
      clearTimeout(due);
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
    page.allocation.length > 0 && table("Allocation", ["Node", "CPUs", "Memory", "Devices"],
      page.allocation.map((part) => [part.node, part.cpus, bytes(part.memory), part.gres.join(", ") || "–"])),
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

function definitions(page) {
  const { job } = page;
  const entries = [
    ["User", job.user], ["Account", job.account], ["Partition", job.partition], ["QOS", job.qos],
    ["Priority", job.priority], ["Submitted", time(job.submit)],
    [job.waiting ? "Expected start" : "Started", time(job.start)],
    [job.ended ? "Ended" : "Ends by its limit", time(job.end)],
    ["Has run", elapsed(job)], ["Time limit", duration(job.limit_s)],
    ["Resources", page.tres.map(([kind, amount]) => `${kind}=${amount}`).join(", ")],
    ["Language", job.run ? "dstack" : "Slurm"],
    ["Dependency", page.dependency], ["Comment", page.comment], ["Restarts", page.restarts || null],
    ["Exit code", job.ended ? `${page.exit_code}:${page.exit_signal}` : null],
    ["Submitted as", page.submit_line],
  ];
  return h("dl", { class: "facts" }, entries.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function script(id) {
  const text = h("pre");
  const load = async (event) => {
    if (!event.target.open || text.textContent) return;
    try {
      text.textContent = (await get(`jobs/${id}/script`)).text;
    } catch (error) {
      text.textContent = error.message;
    }
  };
  return h("details", { hidden: true, ontoggle: load }, h("summary", {}, "Script"), text);
}

/** CPU, memory and GPUs on each node. */
function charts(jobs) {
  const loads = jobs.flatMap((job) => job.loads ?? []);
  return loads.flatMap(([node, load]) => {
    const samples = load.samples ?? [];
    const cpu = samples.slice(1).map((sample, index) => {
      const before = samples[index];
      return [sample.at, (sample.cpu_us - before.cpu_us) / Math.max(1, (sample.at - before.at) * 10)];
    });
    const gpus = (load.gpus ?? []).flatMap((gpu, index) => {
      const readings = gpu.readings ?? [];
      return [
        chart(`${node}: GPU ${index}`, readings.map((read) => [read.at, read.busy_percent]), 100, (value) => `${value} %`),
        chart(`${node}: memory of GPU ${index}`, readings.map((read) => [read.at, read.memory_used]), gpu.memory_total, bytes),
      ];
    });
    return [
      chart(`${node}: CPU`, cpu, null, (value) => `${Math.round(value)} % of one CPU`),
      chart(`${node}: memory`, samples.map((sample) => [sample.at, sample.memory]), null, bytes),
      ...gpus,
    ];
  }).filter(Boolean);
}

/** The end of the output, with a search in its lines. */
class Output {
  /** It was loaded after the job's end: nothing is added to it. */
  isWhole = false;
  #text = "";
  #pre = h("pre", { class: "log", tabindex: 0, "aria-label": "The end of the output" });
  #search = h("input", { type: "search", id: "log-search", oninput: () => this.#draw() });
  element = h("section", { hidden: true }, h("h2", {}, "Output"),
    h("p", {}, h("label", { for: "log-search" }, "Lines with "), this.#search), this.#pre);

  constructor(id) {
    this.id = id;
  }

  async load(hasEnded) {
    try {
      this.#text = await log(this.id, LOG_BYTES);
      this.isWhole = hasEnded;
    } catch (error) {
      this.#text = error.message;
    }
    this.#draw();
  }

  #draw() {
    const word = this.#search.value.toLowerCase();
    const isAtEnd = this.#pre.scrollTop + this.#pre.clientHeight >= this.#pre.scrollHeight - 8;
    const lines = word ? this.#text.split("\n").filter((line) => line.toLowerCase().includes(word)).join("\n") : this.#text;
    if (this.#pre.textContent === lines) return;
    this.#pre.textContent = lines;
    if (isAtEnd) this.#pre.scrollTop = this.#pre.scrollHeight;
  }
}
