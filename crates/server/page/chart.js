// A line over time, with its last value in words; and bars beside each other.

import { h, svg } from "./dom.js";
import { time } from "./format.js";

const [WIDTH, HEIGHT] = [320, 90];

/** `points`: `[at, value]`, the oldest first; `most`: the top of the chart, or nothing for the largest value. */
export function chart(title, points, most, words) {
  if (points.length < 2) return null;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = most || Math.max(...points.map(([, value]) => value), 1);
  const x = (at) => ((at - first) / Math.max(1, last - first)) * WIDTH;
  const y = (value) => HEIGHT - (Math.min(value, top) / top) * HEIGHT;
  const line = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const said = `${title}: ${words(points.at(-1)[1])}`;
  return h("figure", {},
    h("figcaption", {}, said),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${said}, from ${time(first)} to ${time(last)}`, preserveAspectRatio: "none" },
      svg("polyline", { class: "line", points: line })),
    h("div", { class: "axis" }, h("span", {}, time(first)), h("span", {}, time(last))));
}

/** `bars`: `[name, value]`. The values are in words too, so the bars themselves are hidden from screen readers. */
export function barChart(title, bars, words) {
  const top = Math.max(...bars.map(([, value]) => value), 1e-9);
  return h("figure", {}, h("figcaption", {}, title),
    h("ul", { class: "bars" }, bars.map(([name, value]) => h("li", {},
      h("span", { class: "bar-name" }, name), h("span", {}, words(value)),
      svg("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "bar-value", width: (100 * value) / top, height: 4 }))))));
}
