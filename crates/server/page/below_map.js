// What the overview has below its map: changes of nodes, how long jobs wait, and utilisation. Loaded once the map is drawn.

import { forms } from "./administer.js";
import { h } from "./dom.js";
import { Utilisation, waits } from "./utilisation.js";

export class BelowMap {
  utilisation = new Utilisation();
  #queues = h("div");

  /** `reload`: fetches the nodes again after a change. */
  constructor(profile, reload) {
    this.element = h("div", {}, forms("nodes", profile, reload), this.#queues, this.utilisation.element);
  }

  drawWaits(rows) {
    this.#queues.replaceChildren(waits(rows));
  }
}
