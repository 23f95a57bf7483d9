// What the page changes beside jobs, as data: the fields of each form, and the call that commands make for it too.

import { remove } from "./api.js";
import { amounts, count, edited, hosts, minutes, names, optional } from "./form_values.js";

const ROLES = ["user", "manager", "admin"];
const AGAIN = "An empty field leaves what there is; -1 takes it away.";

const reservation = (v) => ({
  name: optional(v.name),
  start: v.start ? new Date(v.start).getTime() : undefined,
  duration: v.minutes ? { set: minutes(v.minutes) } : undefined,
  nodes: v.nodes ? (v.nodes.toLowerCase() === "all" ? "all" : { named: hosts(v.nodes) }) : undefined,
  node_count: count(v.count),
  users: v.users ? { edit: "set", names: names(v.users) } : undefined,
  accounts: v.accounts ? { edit: "set", names: names(v.accounts) } : undefined,
  flags: v.flag && v.flag !== "–" ? { edit: "set", flags: [v.flag] } : undefined,
});

const fleet = (v) => ({
  type: "fleet", name: v.name, placement: v.placement,
  ssh_config: { user: v.user, ssh_key: { public: "", private: v.key }, hosts: names(v.hosts) },
});

/** A fleet whose machines sources make, in dstack's words; what is left out is as dstack's configuration has it. */
const machineFleet = (v) => ({
  type: "fleet", name: v.name, nodes: v.nodes, placement: v.placement, spot_policy: v.spot,
  resources: v.gpu ? { gpu: v.gpu } : undefined, idle_duration: v.idle || undefined, max_price: v.price || undefined,
});

function account(v, current) {
  const before = current?.accounts.accounts.find((one) => one.name === v.name) ?? { name: v.name, parent: "root" };
  return edited(before, { description: optional(v.description), organization: optional(v.organization), parent: optional(v.parent) });
}

function association(v, current) {
  const [user, partition] = [v.user || undefined, v.partition || undefined];
  const isIt = (one) => one.account === v.account && (one.user ?? undefined) === user && (one.partition ?? undefined) === partition;
  const before = current?.accounts.associations.find(isIt) ?? { account: v.account, user, partition };
  const limits = edited(before.limits ?? {}, {
    group_tres: amounts(v.group), max_tres_per_job: amounts(v.job), max_jobs: count(v.jobs), max_submit: count(v.submit), max_wall: minutes(v.wall),
  });
  return { ...edited(before, { shares: count(v.shares), qos: v.qos ? names(v.qos) : undefined }), limits };
}

function qos(v, current) {
  const before = current?.accounts.qos.find((one) => one.name === v.name) ?? { name: v.name };
  return edited(before, {
    description: optional(v.description), priority: count(v.priority), group_tres: amounts(v.group),
    max_tres_per_user: amounts(v.user), max_tres_per_job: amounts(v.job), max_jobs_per_user: count(v.jobs), max_wall: minutes(v.wall),
  });
}

/** The runs whose replicas a service has: while it is updated, two. It is named, or given by where requests to it go. */
function runsOfService(name, current) {
  const replicas = current.jobs.filter((job) => job.service && (job.name === name || job.service === name));
  const places = new Set(replicas.map((job) => job.service));
  if (places.size === 0) throw new Error(`${name}: there is no such service`);
  if (places.size > 1) throw new Error(`${name}: several services have this name: give where its requests go`);
  return [...new Set(replicas.map((job) => Number.parseInt(job.shown, 10)))].map((id) => ({ id }));
}

/** By list: `fields` are `[name, label, kind]`, where a kind is a list of choices, "optional", "verbatim" or "time"; `by` says whose a form is, everybody's without it, `ask` what a change means, which is asked for by `question`.
 * `call` is what commands call too, `request` another request of the page. */
export const FORMS = {
  nodes: [
    { title: "Drain", by: "admins", fields: [["node", "Nodes, as cpu[1-4]"], ["reason", "Reason"]], ask: "No new jobs start there; running ones go on.",
      call: (v) => ({ update_node: { nodes: hosts(v.node), change: { drain: { reason: v.reason } } } }) },
    { title: "Resume", by: "admins", fields: [["node", "Nodes, as cpu[1-4]"]], ask: "Jobs may start there again.",
      call: (v) => ({ update_node: { nodes: hosts(v.node), change: "resume" } }) },
    { title: "Set state of partition", by: "admins", fields: [["name", "Partition"], ["state", "State", ["up", "down", "drain", "inactive"]]],
      ask: "A partition that is down starts no jobs; one that drains takes none. Until a changed configuration is read.",
      call: (v) => ({ update_partition: { name: v.name, change: { state: v.state } } }) },
    { title: "Set longest time in partition", by: "admins", fields: [["name", "Partition"], ["wall", "Minutes"]],
      call: (v) => ({ update_partition: { name: v.name, change: { max_time: minutes(v.wall) ?? "Unlimited" } } }) },
  ],
  projects: [
    { title: "Create project", by: "operators", fields: [["name", "Name"]], call: (v) => ({ create_project: { name: v.name } }) },
    { title: "Set member", by: "coordinators", fields: [["project", "Project"], ["user", "User"], ["role", "Role", ROLES]],
      call: (v) => ({ set_members: { project: v.project, members: { [v.user]: v.role }, change: "add" } }) },
    { title: "Remove member", by: "coordinators", fields: [["project", "Project"], ["user", "User"]], ask: "The user is no longer a member.",
      call: (v) => ({ set_members: { project: v.project, members: { [v.user]: "user" }, change: "remove" } }) },
    { title: "Set default gateway", by: "projectAdmins", fields: [["project", "Project", "optional"], ["gateway", "Gateway", "optional"]],
      hint: "Of services that name none; without a name the site's.",
      call: (v) => ({ set_default_gateway: { project: v.project || "main", gateway: v.gateway || null } }) },
    { title: "Remove project", by: "projectAdmins", fields: [["name", "Name"]], ask: "This cannot be undone.", call: (v) => ({ remove_project: { name: v.name } }) },
  ],
  tokens: [
    { title: "Make token", by: "admins", fields: [["user", "User"], ["name", "Token's name", "optional"]],
      call: (v) => ({ user_token: { name: v.user, account: null, unix_user: null, role: null, token_name: v.name || null } }),
      result: (answer) => `The token, which is shown once: ${answer.token.text}` },
    { title: "Sign out everywhere", fields: [], ask: "Every browser in which you are signed in is signed out, this one too.",
      request: () => remove("session?everywhere=true") },
    { title: "Revoke token", fields: [["name", "Token's name"], ["user", "User", "optional"]], ask: "Whoever uses it is refused from then on.",
      call: (v) => ({ revoke_token: { name: v.name, user: v.user || null } }) },
  ],
  secrets: [
    { title: "Set secret", by: "secretManagers", fields: [["project", "Project", "optional"], ["name", "Name"], ["value", "Value", "verbatim"]],
      call: (v) => ({ set_secret: { project: v.project || "main", name: v.name, value: v.value } }) },
    { title: "Remove secret", by: "secretManagers", fields: [["project", "Project", "optional"], ["name", "Name"]], ask: "This cannot be undone.",
      call: (v) => ({ remove_secrets: { project: v.project || "main", names: [v.name] } }) },
  ],
  volumes: [
    { title: "Create volume", fields: [["project", "Project", "optional"], ["name", "Name"], ["kind", "In", ["node", "shared"]], ["place", "Node or shared folder"]],
      call: (v) => ({ create_volume: { project: v.project || "main", name: v.name, place: { [v.kind]: v.place } } }) },
    { title: "Delete volume", fields: [["project", "Project", "optional"], ["name", "Name"]], ask: "Its files are deleted. This cannot be undone.",
      call: (v) => ({ delete_volume: { project: v.project || "main", name: v.name } }) },
  ],
  services: [
    { title: "Stop service", fields: [["name", "Service"]], ask: "Its replicas end, and nobody answers its requests.",
      call: (v, current) => ({ cancel: { filter: { jobs: runsOfService(v.name, current) }, full: true } }),
      result: (answer) => answer.cancelled.filter((one) => one.refusal).map((one) => `${one.job} was refused`).join(", ") },
  ],
  fleets: [
    { title: "Set fleet over SSH", by: "admins",
      fields: [["project", "Project", "optional"], ["name", "Name"], ["hosts", "Hosts"], ["user", "User there"], ["placement", "Placement", ["any", "cluster"]], ["key", "Private key", "verbatim"]],
      call: (v) => ({ apply_fleet: { project: v.project || "main", configuration: fleet(v) } }) },
    { title: "Set fleet of machines", by: "admins", hint: "Sources and backends make its machines.",
      fields: [["project", "Project", "optional"], ["name", "Name"], ["nodes", "Nodes, as 0..8"], ["gpu", "GPU, as H100:8", "optional"],
        ["spot", "Spot", ["on-demand", "spot", "auto"]], ["price", "Dollars an hour at most", "optional"], ["idle", "Idle, as 10m", "optional"], ["placement", "Placement", ["any", "cluster"]]],
      call: (v) => ({ apply_fleet: { project: v.project || "main", configuration: machineFleet(v) } }) },
    { title: "Remove fleet", by: "admins", fields: [["project", "Project", "optional"], ["name", "Name"]], ask: "Its hosts leave the cluster; jobs that run there end.",
      call: (v) => ({ remove_fleet_hosts: { project: v.project || "main", name: v.name } }) },
    { title: "Remove host of a fleet", by: "admins", fields: [["project", "Project", "optional"], ["name", "Fleet"], ["number", "Number of the host"]], ask: "The host leaves the cluster; jobs that run there end.",
      call: (v) => ({ remove_fleet_hosts: { project: v.project || "main", name: v.name, numbers: [count(v.number)] } }) },
  ],
  backends: [
    { title: "Set backend", by: "admins", fields: [["project", "Project", "optional"], ["config", "YAML, as type: aws", "verbatim"]],
      hint: "Its creds are encrypted and not shown again; without them those that it has stay.",
      call: (v) => ({ set_backend: { project: v.project || "main", config_yaml: v.config } }) },
    { title: "Delete backend", by: "admins", fields: [["project", "Project", "optional"], ["name", "Type"]], ask: "Its offers and its credentials are gone. This cannot be undone.",
      call: (v) => ({ remove_backends: { project: v.project || "main", names: [v.name] } }) },
    { title: "Delete machine", by: "admins", fields: [["name", "Node of the machine"]], ask: "Its jobs end, and the machine is deleted.",
      call: (v) => ({ delete_machine: { name: v.name } }) },
  ],
  agents: [
    { title: "Void certificate", by: "admins", fields: [["name", "Node"]], ask: "The node's agent is refused until the node joins anew.",
      call: (v) => ({ remove_node: { name: v.name } }) },
    { title: "Let join again", by: "admins", fields: [["name", "Node"]], call: (v) => ({ rejoin_node: { name: v.name } }) },
  ],
  reservations: [
    { title: "Create reservation", by: "operators",
      fields: [["name", "Name", "optional"], ["start", "Start (now, if empty)", "time"], ["minutes", "Minutes"], ["nodes", "Nodes, or all", "optional"], ["count", "or a number of nodes", "optional"],
        ["users", "Users", "optional"], ["accounts", "Accounts", "optional"], ["flag", "Kind", ["–", "maint", "flex", "ignore_jobs", "hourly", "daily", "weekly"]]],
      call: (v) => ({ create_reservation: { ...reservation(v), start: v.start ? new Date(v.start).getTime() : Date.now() } }),
      result: (answer) => `Created ${answer.reservation_created?.name ?? ""}` },
    { title: "Change reservation", by: "operators",
      fields: [["name", "Name"], ["minutes", "Minutes", "optional"], ["nodes", "Nodes", "optional"], ["users", "Users", "optional"], ["accounts", "Accounts", "optional"]],
      call: (v) => ({ update_reservation: { name: v.name, ask: { ...reservation(v), name: undefined } } }) },
    { title: "Remove reservation", by: "operators", fields: [["name", "Name"]], ask: "Its nodes are free for others.",
      call: (v) => ({ remove_reservation: { name: v.name } }) },
  ],
  accounts: [
    { title: "Set account", by: "coordinators", fields: [["name", "Account"], ["parent", "Parent", "optional"], ["description", "Description", "optional"], ["organization", "Organization", "optional"]],
      call: (v, current) => ({ set_account: account(v, current) }) },
    { title: "Remove account", by: "coordinators", fields: [["name", "Account"]], ask: "Its users lose it.", call: (v) => ({ remove_account: { name: v.name } }) },
    { title: "Set user or limits of an account", by: "coordinators", hint: AGAIN,
      fields: [["account", "Account"], ["user", "User (none: the account itself)", "optional"], ["partition", "Partition", "optional"], ["shares", "Shares", "optional"],
        ["qos", "QOS", "optional"], ["group", "Together, as cpu=64,gres/gpu=8", "optional"], ["job", "Each job, as cpu=8", "optional"],
        ["jobs", "Running jobs", "optional"], ["submit", "Jobs in the queue", "optional"], ["wall", "Minutes of a job", "optional"]],
      call: (v, current) => ({ set_association: association(v, current) }) },
    { title: "Remove user from account", by: "coordinators", fields: [["account", "Account"], ["user", "User"], ["partition", "Partition", "optional"]], ask: "The user's jobs in it are not taken any more.",
      call: (v) => ({ remove_association: { account: v.account, user: v.user, partition: v.partition || undefined } }) },
    { title: "Set QOS", by: "operators", hint: AGAIN,
      fields: [["name", "QOS"], ["description", "Description", "optional"], ["priority", "Priority", "optional"], ["group", "Together, as gres/gpu=8", "optional"],
        ["user", "Each user, as gres/gpu=2", "optional"], ["job", "Each job", "optional"], ["jobs", "Running jobs of a user", "optional"], ["wall", "Minutes of a job", "optional"]],
      call: (v, current) => ({ set_qos: qos(v, current) }) },
    { title: "Remove QOS", by: "operators", fields: [["name", "QOS"]], ask: "This cannot be undone.", call: (v) => ({ remove_qos: { name: v.name } }) },
    { title: "Set role", by: "admins", fields: [["user", "User"], ["role", "Role", ["user", "operator", "admin"]]], ask: "The user has its rights at once.",
      question: (v) => `Set the role of ${v.user} to ${v.role}`,
      call: (v) => ({ set_role: { name: v.user, role: v.role } }) },
  ],
};
