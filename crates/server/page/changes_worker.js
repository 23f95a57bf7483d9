// One stream of changes for all tabs: a browser opens six connections to a server and no more.

import { openStream } from "./stream.js";

const tabs = new Set();
let close = null;

function tell(what) {
  if (what.kind === "signed_out") close = null;
  for (const tab of tabs) tab.postMessage(what);
}

function stop() {
  close?.();
  close = null;
}

self.addEventListener("connect", (event) => {
  const [tab] = event.ports;
  tab.addEventListener("message", ({ data }) => {
    if (data === "open") {
      tabs.add(tab);
      if (close) tab.postMessage({ kind: "change", jobs: true, nodes: true, lists: true });
      else close = openStream(tell);
    } else if (data === "restart") {
      stop();
      close = openStream(tell);
    } else {
      tabs.delete(tab);
      if (tabs.size === 0) stop();
    }
  });
  tab.start();
});
