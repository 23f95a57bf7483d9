// Forms for what operators, managers and administrators change. What somebody may not, the server refuses and says so.

import { post } from "./api.js";
import { confirmed, h, notice } from "./dom.js";

const ROLES = ["user", "manager", "admin"];

/** By list: `fields` are `[name, label, choices, whether it may be empty, or whether it is taken as it is]`, `call` is what commands send too. */
const FORMS = {
  nodes: [
    { title: "Drain", fields: [["node", "Node"], ["reason", "Reason"]], ask: "No new jobs start there; running ones go on.",
      call: (v) => ({ update_node: { nodes: [v.node], change: { drain: { reason: v.reason } } } }) },
    { title: "Resume", fields: [["node", "Node"]], ask: "Jobs may start there again.",
      call: (v) => ({ update_node: { nodes: [v.node], change: "resume" } }) },
  ],
  projects: [
    { title: "Create project", fields: [["name", "Name"]], call: (v) => ({ create_project: { name: v.name } }) },
    { title: "Set member", fields: [["project", "Project"], ["user", "User"], ["role", "Role", ROLES]],
      call: (v) => ({ set_members: { project: v.project, members: { [v.user]: v.role }, change: "add" } }) },
    { title: "Remove member", fields: [["project", "Project"], ["user", "User"]], ask: "The user is no longer a member.",
      call: (v) => ({ set_members: { project: v.project, members: { [v.user]: "user" }, change: "remove" } }) },
    { title: "Remove project", fields: [["name", "Name"]], ask: "This cannot be undone.", call: (v) => ({ remove_project: { name: v.name } }) },
  ],
  tokens: [
    { title: "Make token", fields: [["user", "User"], ["name", "Token's name", "optional"]],
      call: (v) => ({ user_token: { name: v.user, account: null, unix_user: null, role: null, token_name: v.name || null } }),
      result: (answer) => `The token, which is shown once: ${answer.token.text}` },
    { title: "Revoke token", fields: [["name", "Token's name"], ["user", "User", "optional"]], ask: "Whoever uses it is refused from then on.",
      call: (v) => ({ revoke_token: { name: v.name, user: v.user || null } }) },
  ],
  secrets: [
    { title: "Set secret", fields: [["name", "Name"], ["value", "Value", "verbatim"]],
      call: (v) => ({ set_secret: { project: "main", name: v.name, value: v.value } }) },
    { title: "Remove secret", fields: [["name", "Name"]], ask: "This cannot be undone.",
      call: (v) => ({ remove_secrets: { project: "main", names: [v.name] } }) },
  ],
  reservations: [
    { title: "Remove reservation", fields: [["name", "Name"]], ask: "Its nodes are free for others.",
      call: (v) => ({ remove_reservation: { name: v.name } }) },
  ],
};

/** The forms of a list, folded away; nothing for a list that has none. */
export function forms(list, reload) {
  if (!Object.hasOwn(FORMS, list)) return null;
  return h("details", { class: "administer" }, h("summary", {}, "Change"), FORMS[list].map((form, index) => formElement(`${list}-${index}`, form, reload)));
}

function formElement(id, form, reload) {
  const said = h("output", {});
  const inputs = form.fields.map(([name, label, kind]) => [name, input(`${id}-${name}`, kind), label, kind]);
  const submit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(inputs.map(([name, element, , kind]) => [name, kind === "verbatim" ? element.value : element.value.trim()]));
    if (form.ask && !await confirmed(`${form.title} ${values.name ?? values.node ?? values.user}? ${form.ask}`, form.title)) return;
    try {
      const answer = await post("call", { call: form.call(values) });
      said.textContent = form.result ? form.result(answer) : "";
      notice(`${form.title}: done`);
      event.target.reset();
      await reload();
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("form", { class: "filters", onsubmit: submit },
    inputs.map(([, element, label]) => [h("label", { for: element.id }, label), element]),
    h("button", { type: "submit", class: form.ask && "danger" }, form.title), said);
}

function input(id, kind) {
  if (Array.isArray(kind)) return h("select", { id }, kind.map((choice) => h("option", {}, choice)));
  // A secret may have several lines, and spaces at its ends: a key has both.
  if (kind === "verbatim") return h("textarea", { id, rows: 3, required: true, spellcheck: "false", autocomplete: "off" });
  return h("input", { id, type: "text", required: kind !== "optional", autocomplete: "off" });
}
