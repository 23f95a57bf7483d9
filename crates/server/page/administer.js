// Forms for what operators, managers and administrators change.

import { post } from "./api.js";
import { confirmed, h, notice } from "./dom.js";
import { FORMS } from "./forms.js";
import { LOOKS_ONLY, may } from "./rights.js";

/** The forms of a list that this user may have a use for, folded away. `current` gives the list's answer as it was fetched. */
export function forms(list, profile, reload, current = () => null) {
  if (!Object.hasOwn(FORMS, list)) return null;
  const permitted = FORMS[list].filter((form) => may(profile, form.by));
  if (permitted.length === 0) return null;
  // Such a session makes no calls that change something.
  const usable = permitted.filter((form) => form.request || !profile.looks_only);
  return h("details", { class: "administer" }, h("summary", {}, "Change"),
    profile.looks_only && h("p", { class: "hint" }, LOOKS_ONLY),
    usable.map((form, index) => formElement(`${list}-${index}`, form, reload, current)));
}

function formElement(id, form, reload, current) {
  const said = h("output", {});
  const inputs = form.fields.map(([name, label, kind]) => ({ name, label, kind, element: input(`${id}-${name}`, kind) }));
  const submit = async (event) => {
    event.preventDefault();
    said.textContent = "";
    // What was said of a change before is not said of this one.
    notice("");
    const values = Object.fromEntries(inputs.map(({ name, kind, element }) => [name, kind === "verbatim" ? element.value : element.value.trim()]));
    try {
      const call = form.call?.(values, current());
      const named = values.name ?? values.node ?? values.user ?? values.account ?? "";
      const question = form.question?.(values) ?? `${form.title} ${named}`.trim();
      if (form.ask && !await confirmed(`${question}? ${form.ask}`, form.title)) return;
      const answer = form.request ? await form.request() : await post("call", { call });
      said.textContent = form.result ? form.result(answer) : "";
      notice(`${form.title}: done`);
      event.target.reset();
      await reload();
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("form", { class: "filters", "aria-label": form.title, onsubmit: submit },
    inputs.map(({ label, element }) => h("span", { class: "field" }, h("label", { for: element.id }, label), element)),
    h("button", { type: "submit", class: form.ask && "danger" }, form.title), form.hint && h("span", { class: "hint" }, form.hint), said);
}

function input(id, kind) {
  if (Array.isArray(kind)) return h("select", { id }, kind.map((choice) => h("option", {}, choice)));
  // A secret may have several lines, and spaces at its ends: a key has both.
  if (kind === "verbatim") return h("textarea", { id, rows: 3, required: true, spellcheck: "false", autocomplete: "off" });
  if (kind === "time") return h("input", { id, type: "datetime-local" });
  return h("input", { id, type: "text", required: kind !== "optional", autocomplete: "off" });
}
