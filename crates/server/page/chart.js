// A line over time, with its last value in words; and bars beside each other.

import { h, svg } from "./dom.js";
import { time } from "./format.js";

const [WIDTH, HEIGHT] = [320, 90];

/** `points`: `[at, value]`, the oldest first; `most`: the top of the chart, or nothing for the largest value; `when` says a time. */
export function chart(title, points, most, words, when = time) {
  if (points.length < 2) return null;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = most || Math.max(...points.map(([, value]) => value), 1);
  const x = (at) => ((at - first) / Math.max(1, last - first)) * WIDTH;
  const y = (value) => HEIGHT - (Math.min(value, top) / top) * HEIGHT;
  const line = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const said = `${title}: ${words(points.at(-1)[1])}`;
  const caption = h("figcaption", {}, said);
  const pointer = svg("line", { class: "pointer", y1: 0, y2: HEIGHT, hidden: true });
  const label = `${said}, from ${when(first)} to ${when(last)}, between ${words(0)} and ${words(top)}`;
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("polyline", { class: "line", points: line }), pointer);
  // Says the value that somebody points at.
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const [at, value] = nearest(points, first + ((event.clientX - box.left) / box.width) * (last - first));
    caption.textContent = `${title}: ${words(value)} at ${when(at)}`;
    pointer.setAttribute("x1", x(at));
    pointer.setAttribute("x2", x(at));
    pointer.removeAttribute("hidden");
  });
  plot.addEventListener("pointerleave", () => {
    caption.textContent = said;
    pointer.setAttribute("hidden", "");
  });
  return h("figure", {}, caption,
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, words(top)), h("span", {}, words(0))), plot,
      h("div", { class: "axis" }, h("span", {}, when(first)), h("span", {}, when(last)))));
}

const nearest = (points, at) => points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));

/** `bars`: `[name, value]`. The values are in words too, so the bars themselves are hidden from screen readers. */
export function barChart(title, bars, words) {
  const top = Math.max(...bars.map(([, value]) => value), 1e-9);
  return h("figure", {}, h("figcaption", {}, title),
    h("ul", { class: "bars" }, bars.map(([name, value]) => h("li", {},
      h("span", { class: "bar-name" }, name), h("span", {}, words(value)),
      svg("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "bar-value", width: (100 * value) / top, height: 4 }))))));
}
