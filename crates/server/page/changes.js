// What changed, for the parts of this page: by the worker that all tabs share, or where there is none by a stream of our own.

import { openStream } from "./stream.js";

const listeners = new Set();
let worker = null;
let closeOwn = null;

const tell = (what) => listeners.forEach((listener) => listener(what));

/** Calls back with `{kind, jobs, nodes, lists}`. */
export function onChange(listener) {
  listeners.add(listener);
}

/** Begins to listen, for the session that there is now. */
export function listen() {
  if (!("SharedWorker" in window)) {
    closeOwn?.();
    closeOwn = openStream(tell);
    return;
  }
  if (worker) {
    worker.port.postMessage("restart");
    return;
  }
  worker = new SharedWorker(new URL("./changes_worker.js", import.meta.url), { type: "module", name: "sluice-changes" });
  worker.port.addEventListener("message", (event) => tell(event.data));
  worker.port.start();
  worker.port.postMessage("open");
  window.addEventListener("pagehide", () => worker.port.postMessage("leave"));
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) worker.port.postMessage("open");
  });
}
