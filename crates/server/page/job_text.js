// The server's sentences about jobs, with links to those that they name and times on the person's own clock.

import { h } from "./dom.js";
import { time } from "./format.js";
import { jobAddress } from "./router.js";

/** `2026-11-15T00:51:49Z`, or a job's number as sentences have it: `job 12_3`, `12_3 (ann)`. */
const PART = /\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)|\b(\d+(?:[_+]\d+)?)(?= \()|(?<=\bjob )(\d+(?:[_+]\d+)?)\b/g;

/** The sentence in parts; `named`: the jobs that it may name. */
export function sentence(text, named = []) {
  const known = new Set(named);
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(PART)) {
    const [whole, at] = found;
    const id = found[2] ?? found[3];
    if (id && !known.has(id)) continue;
    parts.push(text.slice(from, found.index), at ? time(Date.parse(at)) : h("a", { href: jobAddress(id) }, id));
    from = found.index + whole.length;
  }
  return [...parts, text.slice(from)];
}

/** The same as words alone. */
export const words = (text) => sentence(text).join("");
