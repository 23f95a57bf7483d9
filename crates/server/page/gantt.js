// Nodes over time as a drawing. Each bar is a link to its job; arrow keys go from one to the next, and what a bar stands for is
// told to whoever points at it or comes to it by the keyboard.

import { svg } from "./dom.js";
import { colour, time } from "./format.js";
import { jobAddress } from "./router.js";

const [ROW, HEAD] = [22, 24];
/** The width where nothing else is said, and the least: what is narrower is scrolled. */
const [WIDTH, WIDTH_LEAST] = [1100, 640];
/** The width of a letter of a node's name, and the most that names may have of the whole. */
const [LETTER, NAMES_PART] = [8, 0.2];
/** Jobs that share a node are in lanes below each other: the height of one, and the most of a node, fewer where there are many nodes. */
const [LANE, LANES_LEAST, LANES_MOST, LANES_ALL] = [14, 3, 16, 6_000];
/** The hours that may be between two lines of a clock. */
const TICK_HOURS = [0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 96, 192];
const HOUR = 3_600_000;
/** The time of a line is written to its right, and takes no more than this. */
const LABEL = 110;

/** `answer`: the server's timeline; `range`: `{from, to, now}`; `point(text, job)` is called with what a bar or reservation is; `own`: the
 * job that is marked; `room`: the width that there is. */
export function gantt(answer, range, point, own, room = WIDTH) {
  const width = Math.max(WIDTH_LEAST, room);
  const { places, height } = layout(answer, range);
  const names = [...places].map(([name, place]) => ({ name, place, text: place.more ? `${name} +${place.more}` : name }));
  const letters = Math.floor((width * NAMES_PART) / LETTER);
  const left = LETTER * (Math.min(letters, Math.max(1, ...names.map(({ text }) => text.length))) + 1);
  const inside = (at) => Math.min(Math.max(at, range.from), range.to);
  const x = (at) => left + ((inside(at) - range.from) / (range.to - range.from)) * (width - left);
  const reserved = answer.reservations.flatMap((one) => reservedShapes(one, range, places, x));
  const bars = answer.bars.flatMap((bar) => barShapes(bar, range, places, x, own)).sort((one, other) => one.y - other.y || one.start - other.start);
  const ticks = roundTimes(range.from, range.to, Math.floor((width - left) / LABEL));
  const drawing = svg("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Jobs on nodes over time" },
    ticks.map((at) => [
      svg("line", { class: "tick", x1: x(at), x2: x(at), y1: HEAD - 4, y2: height }),
      x(at) < width - LABEL && svg("text", { class: "label", x: x(at) + 3, y: 14 }, time(at)),
    ]),
    names.map((one) => nameElement(one, letters)),
    reserved.map((one) => one.element), bars.map((one) => one.element),
    svg("line", { class: "now", x1: x(range.now), x2: x(range.now), y1: 0, y2: height }));
  listen(drawing, bars, reserved, point);
  return drawing;
}

/** A name that is too long loses its beginning: what nodes differ in is at the end. */
function nameElement({ name, place, text }, letters) {
  const isCut = text.length > letters;
  const more = place.more > 0 ? `${place.more} more jobs are drawn in its last line` : "";
  const title = [isCut && name, more].filter(Boolean).join(": ");
  return svg("text", { class: "label", x: 0, y: place.y + 15 }, isCut ? `…${text.slice(1 - letters)}` : text, title && svg("title", {}, title));
}

/** Where each node is, `{y, height, lane, margin, lanes, more}`: `lane` the height of a line, `lanes` the line of each of its jobs, `more`
 * how many had none that was free. */
function layout(answer, range) {
  const most = Math.max(LANES_LEAST, Math.min(LANES_MOST, Math.floor(LANES_ALL / Math.max(1, answer.nodes.length))));
  const places = new Map(answer.nodes.map((name) => [name, { lanes: new Map(), ends: [], more: 0 }]));
  const drawn = answer.bars.filter((bar) => bar.start < range.to && (bar.end ?? range.to) > range.from);
  for (const bar of drawn.sort((one, other) => one.start - other.start || one.job - other.job)) {
    for (const name of bar.nodes) if (places.has(name)) takeLane(places.get(name), bar, most);
  }
  let y = HEAD;
  for (const place of places.values()) {
    const count = place.ends.length;
    Object.assign(place, count > 1 ? { y, lane: LANE, margin: 1, height: count * LANE + 4 } : { y, lane: ROW, margin: 3, height: ROW });
    y += place.height;
  }
  return { places, height: y };
}

/** The first line of the node that is free when the job starts. */
function takeLane(place, bar, most) {
  const { ends, lanes } = place;
  let lane = ends.findIndex((end) => end <= bar.start);
  if (lane < 0) lane = ends.length;
  if (lane === most) {
    lane -= 1;
    place.more += 1;
  }
  ends[lane] = Math.max(ends[lane] ?? 0, bar.end ?? Infinity);
  lanes.set(bar, lane);
}

/** Times between two others that are round on the person's own clock. */
function roundTimes(from, to, most) {
  const least = (to - from) / Math.max(1, most);
  const hours = TICK_HOURS.find((one) => one * HOUR >= least);
  const [step, offset] = [hours ? hours * HOUR : least, new Date(from).getTimezoneOffset() * 60_000];
  const first = Math.ceil((from - offset) / step) * step + offset;
  return Array.from({ length: Math.max(0, Math.ceil((to - first) / step)) }, (_, index) => first + index * step);
}

function reservedShapes(kept, range, places, x) {
  if (kept.start >= range.to || kept.end <= range.from) return [];
  const label = `${kept.maintenance ? "Maintenance" : "Reservation"} ${kept.name}, ${time(kept.start)} to ${time(kept.end)}`;
  return kept.nodes.filter((name) => places.has(name)).map((name) => ({
    label,
    element: svg("rect", { class: kept.maintenance ? "maintenance" : "reserved", x: x(kept.start), y: places.get(name).y + 1,
      width: Math.max(1, x(kept.end) - x(kept.start)), height: places.get(name).height - 2 }, svg("title", {}, label)),
  }));
}

function barShapes(bar, range, places, x, own) {
  const end = bar.end ?? range.to;
  if (bar.start >= range.to || end <= range.from) return [];
  const kind = bar.kept ? "place kept from " : bar.expected ? "expected " : "";
  const which = bar.job === own ? "This job, " : "Job ";
  const label = `${which}${bar.shown} (${bar.name}) of ${bar.user}, ${kind}${time(bar.start)} to ${bar.end ? time(bar.end) : "no limit"}`;
  const look = `${bar.kept ? " kept" : bar.expected ? " expected" : ""}${bar.job === own ? " own" : ""}`;
  return bar.nodes.filter((name) => places.has(name)).map((name) => {
    const place = places.get(name);
    const y = place.y + place.lanes.get(bar) * place.lane;
    return {
      label, job: bar.job, y, start: bar.start,
      element: svg("a", { href: jobAddress(bar.job), "aria-label": `${label}, on ${name}`, tabindex: -1 },
        svg("rect", { class: `bar ${colour(bar.user)}${look}`, x: x(bar.start), y: y + place.margin,
          width: Math.max(2, x(end) - x(bar.start)), height: place.lane - 2 * place.margin, rx: 2 }, svg("title", {}, label))),
    };
  });
}

/** One bar is in the order of the Tab key; the arrows go from there. */
function listen(drawing, bars, reserved, point) {
  const told = new Map([...bars, ...reserved].map((one) => [one.element, one]));
  const tell = (event) => {
    const shape = event.target.closest("a, rect");
    const known = told.get(shape) ?? told.get(shape?.parentNode);
    if (known) point(known.label, known.job);
  };
  drawing.addEventListener("pointerover", tell);
  drawing.addEventListener("focusin", tell);
  bars[0]?.element.setAttribute("tabindex", "0");
  drawing.addEventListener("keydown", (event) => {
    const at = bars.findIndex((one) => one.element === document.activeElement);
    if (at < 0) return;
    const row = bars[at].y;
    const moves = {
      ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bars.length - 1,
      ArrowDown: bars.findIndex((one) => one.y > row), ArrowUp: bars.findLastIndex((one) => one.y < row),
    };
    const next = bars[moves[event.key]];
    if (!next) return;
    event.preventDefault();
    bars[at].element.setAttribute("tabindex", "-1");
    next.element.setAttribute("tabindex", "0");
    next.element.focus();
  });
}
