// The views by the names that addresses have. The overview is loaded with the page; the modules of the others are, once the first view
// is drawn or when one is asked for.

import { overview } from "./overview.js";
import { unknownView } from "./unknown_view.js";

const LATER = {
  queue: () => import("./queue.js").then((module) => module.queueView),
  array: () => import("./array.js").then((module) => module.arrayView),
  job: () => import("./job.js").then((module) => module.jobView),
  timeline: () => import("./timeline.js").then((module) => module.timelineView),
  submit: () => import("./submit.js").then((module) => module.submitView),
  usage: () => import("./usage.js").then((module) => module.usageView),
  lists: () => import("./lists.js").then((module) => module.listsView),
};

const loaded = new Map([["overview", overview]]);

/** What makes the view of a name, also where there is none of this name; nothing while it is not loaded. */
export const loadedView = (name) => loaded.get(name) ?? (Object.hasOwn(LATER, name) ? undefined : (route) => unknownView("view", route.name));

export async function loadView(name) {
  if (!loaded.has(name)) loaded.set(name, await LATER[name]());
  return loaded.get(name);
}

/** A page that is open over an upgrade of the server has all its modules of one version. */
export function loadOtherViews() {
  for (const name of Object.keys(LATER)) loadView(name).catch(() => {});
}
