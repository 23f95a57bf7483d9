// Nodes over time: running jobs until their limits, expected starts, reservations.

import { get } from "./api.js";
import { h, svg, table } from "./dom.js";
import { colour, setClock, time } from "./format.js";
import { jobAddress, replaceAddress } from "./router.js";

const HOUR = 3_600_000;
const RANGES = { "6 hours": 6, "1 day": 24, "3 days": 72, "2 weeks": 336 };
/** A timeline is expensive to draw: it follows the queue no more often than this. */
const INTERVAL_MS = 10_000;
const [ROW, LEFT, WIDTH, HEAD] = [22, 120, 1100, 24];

export function timelineView(route) {
  const asked = Number(route.query.get("hours"));
  let hours = Object.values(RANGES).includes(asked) ? asked : 24;
  const drawing = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline" });
  const words = h("details", {}, h("summary", {}, "As a table"));
  const cut = h("p", { role: "status" });
  let answer = null;
  let due = null;

  const draw = () => {
    if (!answer) return;
    const range = { from: answer.now - (hours * HOUR) / 12, to: answer.now + hours * HOUR, now: answer.now };
    cut.textContent = answer.cut ? "There are more jobs than are drawn here." : "";
    drawing.replaceChildren(picture(answer, range));
    words.replaceChildren(h("summary", {}, "As a table"), asTable(answer));
  };
  const load = async () => {
    answer = await get("timeline");
    setClock(answer.now);
    draw();
  };
  const select = h("select", { id: "hours", onchange: () => {
    hours = Number(select.value);
    replaceAddress("timeline", { hours });
    draw();
  } }, Object.entries(RANGES).map(([name, value]) => h("option", { value, selected: value === hours }, name)));

  return {
    title: "Timeline",
    element: h("section", {}, h("h1", {}, "Timeline"),
      h("p", {}, h("label", { for: "hours" }, "Range "), select),
      h("p", { class: "legend" }, "Full bars run now and end by their limits; outlined ones are expected; shaded times are reserved."),
      cut, drawing, words),
    ready: load(),
    update: () => {
      due ??= setTimeout(() => {
        due = null;
        load().catch(() => {});
      }, INTERVAL_MS);
    },
    close: () => clearTimeout(due),
  };
}

function picture(answer, range) {
  const places = new Map(answer.nodes.map((name, index) => [name, HEAD + index * ROW]));
  const height = HEAD + answer.nodes.length * ROW;
  const x = (at) => LEFT + ((Math.min(Math.max(at, range.from), range.to) - range.from) / (range.to - range.from)) * (WIDTH - LEFT);
  const isShown = (start, end) => start < range.to && end > range.from;
  const end = (bar) => bar.end ?? range.to;
  const shapes = [];
  for (const kept of answer.reservations.filter((one) => isShown(one.start, one.end))) {
    for (const node of kept.nodes.filter((name) => places.has(name))) {
      shapes.push(svg("rect", { class: kept.maintenance ? "maintenance" : "reserved", x: x(kept.start), y: places.get(node) + 1, width: Math.max(1, x(kept.end) - x(kept.start)), height: ROW - 2 },
        svg("title", {}, `Reservation ${kept.name}, ${time(kept.start)} to ${time(kept.end)}`)));
    }
  }
  for (const bar of answer.bars.filter((one) => isShown(one.start, end(one)))) {
    const label = `Job ${bar.shown} (${bar.name}) of ${bar.user}, ${bar.expected ? "expected " : ""}${time(bar.start)} to ${bar.end ? time(bar.end) : "no limit"}`;
    for (const node of bar.nodes.filter((name) => places.has(name))) {
      shapes.push(svg("a", { href: jobAddress(bar.job), "aria-label": label },
        svg("rect", { class: `bar ${colour(bar.user)}${bar.expected ? " expected" : ""}`, x: x(bar.start), y: places.get(node) + 3, width: Math.max(2, x(end(bar)) - x(bar.start)), height: ROW - 6, rx: 2 },
          svg("title", {}, label))));
    }
  }
  const ticks = Array.from({ length: 8 }, (_, index) => range.from + ((range.to - range.from) * index) / 8);
  return svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "group", "aria-label": "Jobs on nodes over time" },
    ticks.map((at) => [
      svg("line", { class: "tick", x1: x(at), x2: x(at), y1: HEAD - 4, y2: height }),
      svg("text", { class: "label", x: x(at) + 3, y: 14 }, time(at)),
    ]),
    answer.nodes.map((name) => svg("text", { class: "label", x: 0, y: places.get(name) + 15 }, name)),
    shapes,
    svg("line", { class: "now", x1: x(range.now), x2: x(range.now), y1: 0, y2: height }));
}

function asTable(answer) {
  const rows = answer.bars.map((bar) => [
    h("a", { href: jobAddress(bar.job) }, bar.shown), bar.user, bar.name,
    `${bar.expected ? "~" : ""}${time(bar.start)}`, bar.end ? time(bar.end) : "no limit", bar.nodes.join(", "),
  ]);
  return table("Jobs on nodes", ["Job", "User", "Name", "Start", "End", "Nodes"], rows);
}
