// A file for a spreadsheet, which must not take a text for a formula.

import { h } from "./dom.js";

/** `rows`: lists of texts. */
export function save(name, rows) {
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll("\"", "\"\"")}"`;
  const text = rows.map((cells) => cells.map(cell).join(",")).join("\r\n");
  const place = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: place, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(place), 60_000);
}
