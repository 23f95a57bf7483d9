// A batch script or a configuration of dstack, checked while it is typed and sent when it is right.

import { post } from "./api.js";
import { h, notice, noticeThere, table } from "./dom.js";
import { bytes, time } from "./format.js";
import { NumberedText } from "./numbered_text.js";
import { LOOKS_ONLY } from "./rights.js";
import { jobAddress } from "./router.js";

/** A check waits for a pause in the typing. */
const PAUSE_MS = 600;

const EXAMPLE = "#!/bin/sh\n#SBATCH --job-name=hello\n#SBATCH --time=10\n#SBATCH --ntasks=1\n\nhostname\n";

/** What was typed stays for this user until the page is left: nothing of it is kept where a page of a job might read or change it. */
let draft = { user: null, text: EXAMPLE };

export function submitView(_, profile) {
  if (draft.user !== profile.user) draft = { user: profile.user, text: EXAMPLE };
  const editor = new NumberedText({ id: "script", rows: 20, spellcheck: "false", autocomplete: "off", "aria-describedby": "checked" }, draft.text, () => later());
  const text = editor.field;
  const checked = h("div", { id: "checked", role: "status" });
  const send = h("button", { type: "submit", disabled: true }, "Submit");
  let pause = null;
  let number = 0;
  let isUnchecked = false;

  const check = async () => {
    const own = ++number;
    isUnchecked = false;
    try {
      const answer = await post("check", { script: text.value });
      if (own !== number) return;
      send.disabled = answer.errors.length > 0;
      checked.replaceChildren(...found(answer, editor));
    } catch (error) {
      if (own !== number) return;
      isUnchecked = error.status === 0;
      checked.replaceChildren(h("p", { class: "error" }, error.message));
    }
  };
  const later = () => {
    draft.text = text.value;
    send.disabled = true;
    // An answer that is under way is for another text.
    number += 1;
    clearTimeout(pause);
    pause = setTimeout(check, PAUSE_MS);
  };
  const submit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    notice("");
    try {
      const answer = await post("submit", { script: text.value });
      noticeThere(`Submitted job ${answer.job}`);
      location.hash = jobAddress(answer.job);
    } catch (error) {
      checked.replaceChildren(h("p", { class: "error" }, error.message));
      // What was refused now may be taken later, unchanged.
      send.disabled = false;
    }
  };

  return {
    title: "Submit",
    element: h("section", {}, h("h1", {}, "Submit"),
      h("form", { onsubmit: submit },
        h("p", {}, h("label", { for: "script" }, "A batch script, or a dstack configuration in YAML")),
        editor.element, checked, profile.looks_only ? h("p", { class: "hint" }, LOOKS_ONLY) : h("p", {}, send))),
    ready: check(),
    // The server is there again.
    update: () => isUnchecked && check(),
    close: () => clearTimeout(pause),
  };
}

// Why a node takes no jobs, in the words of `sluice offer`.
const OUTAGES = { down: "down", drained: "drained", silent: "not responding" };

function found(answer, editor) {
  const lines = (kind, texts) => texts.length > 0 && h("ul", { class: kind }, texts.map((line) => h("li", {}, editor.said(line))));
  // No nodes come for those to whom they are private.
  const place = (one) => (one.nodes.length ? ` on ${one.nodes.join(", ")}` : "");
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const gpus = answer.gpus && answer.starts.length === 1 ? ` and ${counted(answer.gpus, "GPU")}` : "";
  const verb = answer.errors.length ? "If it waited, it would start" : "Would start";
  const starts = answer.starts.map((one) => h("p", {}, `${verb} ${time(one.start)}${place(one)} (${one.partition}), with ${counted(one.cpus, "CPU")}${gpus}.`));
  const offers = answer.offers.length > 0 && table("Offers", ["Node", "Fleet", "CPUs", "Memory", "GPUs", "Now"], answer.offers.map((one) => [
    one.node, one.fleet, one.cpus, bytes(one.memory), one.gpus.map(([kind, count]) => `${count} × ${kind || "GPU"}`).join(", ") || "–",
    one.available ? "free" : one.machine ? "would be made" : OUTAGES[one.outage] ?? "busy",
  ]));
  return [lines("error", answer.errors), lines("notes", answer.notes), ...starts, offers].filter(Boolean);
}
