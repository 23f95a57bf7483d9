// Nodes over time: running jobs until their limits, kept places, expected starts, reservations.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { Explainer } from "./explainer.js";
import { setClock, time } from "./format.js";
import { gantt } from "./gantt.js";
import { jobAddress, replaceAddress } from "./router.js";

const HOUR = 3_600_000;
const RANGES = { "6 hours": 6, "1 day": 24, "3 days": 72, "2 weeks": 336 };
/** A timeline is expensive to draw: it follows the queue no more often than this. */
const INTERVAL_MS = 10_000;

export function timelineView(route) {
  const asked = Number(route.query.get("hours"));
  let hours = Object.values(RANGES).includes(asked) ? asked : 24;
  const drawing = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline" });
  const words = h("details", { ontoggle: () => drawWords() }, h("summary", {}, "As a table"));
  const cut = h("p", { role: "status" });
  const explainer = new Explainer();
  let answer = null;
  let due = null;
  let room = 0;

  // Thousands of rows are made for those alone who open them.
  const drawWords = () => {
    if (answer && words.open) words.replaceChildren(words.firstChild, asTable(answer));
  };
  const draw = () => {
    if (!answer) return;
    const range = { from: answer.now - (hours * HOUR) / 12, to: answer.now + hours * HOUR, now: answer.now };
    cut.textContent = answer.cut ? "There are more jobs than are drawn here." : "";
    room = drawing.clientWidth;
    drawing.replaceChildren(gantt(answer, range, (text, job) => explainer.show(text, job), undefined, room));
    drawWords();
  };
  const load = async () => {
    answer = await get("timeline");
    setClock(answer.now);
    draw();
  };
  // The window is made wider or narrower.
  const observer = new ResizeObserver(() => drawing.clientWidth !== room && draw());
  observer.observe(drawing);
  const later = () => {
    due ??= setTimeout(() => {
      due = null;
      // Whoever goes through the bars by the keyboard is not thrown out of them.
      if (drawing.contains(document.activeElement)) later();
      else load().catch(() => {});
    }, INTERVAL_MS);
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
      h("p", { class: "legend" }, "Full bars run now and end by their limits. Outlined ones have a place kept; dashed ones are expected. Shaded times are reserved, or for maintenance."),
      cut, explainer.element, drawing, words),
    ready: load(),
    update: later,
    close: () => {
      clearTimeout(due);
      observer.disconnect();
      explainer.close();
    },
  };
}

function asTable(answer) {
  const rows = answer.bars.map((bar) => [
    h("a", { href: jobAddress(bar.job) }, bar.shown), bar.user, bar.name,
    `${bar.expected ? "~" : ""}${time(bar.start)}${bar.kept ? " (kept)" : ""}`, bar.end ? time(bar.end) : "no limit", bar.nodes.join(", "),
  ]);
  return table("Jobs on nodes", ["Job", "User", "Name", "Start", "End", "Nodes"], rows);
}
