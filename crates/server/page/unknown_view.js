// In place of a view or a list that an address names and that there is not.

import { h } from "./dom.js";

/** `kind`: `view` or `list`. */
export const unknownView = (kind, name) => ({
  title: `No such ${kind}`,
  element: h("section", {}, h("h1", {}, `No such ${kind}`),
    h("p", { class: "error", role: "alert" }, `${name}: there is no such ${kind}; the links above lead to those that there are.`)),
  update: () => {},
  close: () => {},
});
