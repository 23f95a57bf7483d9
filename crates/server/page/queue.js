// The queue: one's own jobs first, filtered and sorted as the address says.

import { h, notice } from "./dom.js";
import { EndedJobs } from "./ended_jobs.js";
import { duration, elapsed, time } from "./format.js";
import { queue } from "./queue_store.js";
import { jobAddress, replaceAddress } from "./router.js";
import { VirtualList } from "./virtual_list.js";

const COLUMNS = [
  { title: "Job", key: "id", rank: 0, text: (job) => job.shown, address: (job) => jobAddress(job.id) },
  { title: "State", key: "state", rank: 0, text: (job) => job.state.toLowerCase() },
  { title: "User", key: "user", rank: 1, text: (job) => job.user },
  { title: "Name", key: "name", rank: 0, text: (job) => job.name },
  { title: "Partition", key: "partition", rank: 2, text: (job) => job.partition },
  { title: "GPUs", key: "gpus", rank: 1, text: (job) => job.gpus || "–" },
  { title: "CPUs", key: "cpus", rank: 3, text: (job) => job.cpus },
  { title: "Time", key: "start", rank: 2, text: (job) => elapsed(job) },
  { title: "Limit", key: "limit_s", rank: 3, text: (job) => duration(job.limit_s) },
  { title: "Start, end", key: "start", rank: 2, text: (job) => when(job) },
  { title: "Priority", key: "priority", rank: 3, text: (job) => job.priority },
  { title: "Nodes, reason", key: "reason", rank: 1, text: (job) => (job.waiting ? `(${job.reason})` : job.nodes) },
];

/** When it started, is expected to start, or ended. */
function when(job) {
  if (job.ended) return `ended ${time(job.end)}`;
  return job.start ? (job.waiting ? "~" : "") + time(job.start) : "–";
}

/** Columns that a list can be sorted by: nothing else from the address is. */
const SORT_KEYS = new Set(COLUMNS.map((column) => column.key));

export function queueView(route, profile) {
  const wanted = {
    q: route.query.get("q") ?? "",
    state: route.query.get("state") ?? "",
    mine: route.query.get("mine") === "1",
    sort: SORT_KEYS.has(route.query.get("sort")) ? route.query.get("sort") : "",
    desc: route.query.get("desc") === "1",
  };
  const count = h("span", { role: "status" }, "Loading…");
  const heads = COLUMNS.map((column) => h("div", { role: "columnheader", class: `rank-${column.rank}` },
    h("button", { type: "button", onclick: () => sortBy(column.key) }, column.title)));
  const list = new VirtualList("Jobs", COLUMNS, heads, (job) => { location.hash = jobAddress(job.id); });

  const isOver = () => wanted.state === "ended";
  const ended = new EndedJobs(() => draw());
  const loadMore = (all) => ended.loadMore(all).catch((error) => notice(error.message));
  const more = h("button", { type: "button", hidden: true, onclick: () => loadMore(false) }, "Show more");
  const load = () => (isOver() ? ended.load() : queue.refresh());

  const draw = () => {
    const rows = chosen([...(isOver() ? ended : queue).rows.values()], wanted, profile.user);
    const listed = `${rows.length} of ${queue.rows.size} jobs${queue.cut ? ", and more that are not listed" : ""}`;
    count.textContent = isOver() ? ended.words(rows.length) : listed;
    more.hidden = !isOver() || !ended.more;
    heads.forEach((head, index) => {
      const isSorted = COLUMNS[index].key === wanted.sort;
      head.setAttribute("aria-sort", isSorted ? (wanted.desc ? "descending" : "ascending") : "none");
    });
    list.show(rows);
  };
  const apply = () => {
    replaceAddress("queue", { ...wanted, mine: wanted.mine ? "1" : "", desc: wanted.desc ? "1" : "" });
    draw();
  };
  const sortBy = (key) => {
    wanted.desc = wanted.sort === key && !wanted.desc;
    wanted.sort = key;
    apply();
  };

  const text = h("input", { type: "search", id: "filter", value: wanted.q, oninput: () => {
    wanted.q = text.value;
    apply();
    if (isOver()) loadMore(true);
  } });
  const state = h("select", { id: "state", onchange: () => {
    wanted.state = state.value;
    apply();
    load().then(draw, (error) => notice(error.message));
  } },
    [["", "all"], ["waiting", "waiting"], ["running", "running"], ["ended", "ended"]].map(([value, name]) => h("option", { value, selected: value === wanted.state }, name)));
  const mine = h("input", { type: "checkbox", id: "mine", checked: wanted.mine, onchange: () => { wanted.mine = mine.checked; apply(); } });
  queue.addEventListener("change", draw);
  const clock = setInterval(draw, 30_000);

  return {
    title: "Queue",
    element: h("section", { class: "tall" }, h("h1", {}, "Queue"),
      h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
        h("span", { class: "field" }, h("label", { for: "filter" }, "Search"), text),
        h("span", { class: "field" }, h("label", { for: "state" }, "State"), state),
        h("span", { class: "field" }, mine, h("label", { for: "mine" }, "mine only"))),
      h("p", { class: "buttons" }, count, more), list.element),
    ready: load().then(() => {
      draw();
      if (route.kept) list.place = route.kept;
      if (isOver() && wanted.q) loadMore(true);
    }),
    update: (what) => what.jobs && (isOver() ? ended.follow() : queue.refresh()).catch(() => {}),
    // Where the list was scrolled to, for who comes back to it.
    kept: () => list.place,
    close: () => {
      clearInterval(clock);
      queue.removeEventListener("change", draw);
    },
  };
}

function chosen(jobs, wanted, user) {
  const words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (job) => {
    if (wanted.mine && job.user !== user) return false;
    if (wanted.state === "waiting" && !job.waiting) return false;
    if (wanted.state === "running" && job.waiting) return false;
    if (words.length === 0) return true;
    const text = `${job.shown} ${job.name} ${job.user} ${job.account} ${job.partition} ${job.qos} ${job.state} ${job.reason} ${job.nodes} ${job.run ? "dstack" : "slurm"}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const rows = jobs.filter(fits).map((job) => ({ ...job, mine: job.user === user }));
  if (wanted.sort) return rows.sort(byKey(wanted.sort, wanted.desc));
  return rows.sort(wanted.state === "ended" ? ownAndNewestFirst : ownFirst);
}

/** One's own first; then what runs, then what waits by priority. */
function ownFirst(one, other) {
  return other.mine - one.mine || one.waiting - other.waiting || other.priority - one.priority || one.id - other.id;
}

function ownAndNewestFirst(one, other) {
  return other.mine - one.mine || other.end - one.end || other.id - one.id;
}

function byKey(key, desc) {
  const sign = desc ? -1 : 1;
  return (one, other) => {
    const [a, b] = [one[key], other[key]];
    if (a === b) return one.id - other.id;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  };
}
