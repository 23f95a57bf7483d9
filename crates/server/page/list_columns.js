// The columns of each list: `[head, value(row)]`, in the order in which a person looks for them. What a column says of a row is a text.

import { bytes, duration, heading, time } from "./format.js";

const percent = (part) => (part === null || part === undefined ? "" : `${(100 * part).toFixed(1)} %`);
const when = (at) => (at ? time(at) : "");
const names = (list) => (list ?? []).join(", ");
const yes = (value) => (value ? "yes" : "");
const dollars = (parts, digits) => (value) => (value === null || value === undefined ? "" : `$${(value / parts).toFixed(digits)}`);
/** Prices are ten-thousandths of a dollar for an hour, costs millionths of one. */
const [price, cost] = [dollars(1e4, 4), dollars(1e6, 2)];
const word = (value) => heading(String(value ?? "")).toLowerCase();

/** A time limit, as Slurm writes it. */
const limit = (value) => (value === null || value === undefined ? "" : value === "Unlimited" ? "unlimited" : duration(60 * value.Minutes));

/** `cpu=64,mem=512G,gres/gpu=8`, as the forms take it. */
const amounts = (tres) => Object.entries(tres ?? {}).map(([kind, amount]) => `${kind}=${kind === "mem" ? mebibytes(amount) : amount}`).join(",");
const mebibytes = (amount) => (amount % 1024 ? `${amount}M` : `${amount / 1024}G`);

/** Who may use something: everybody, some, or all but some. */
const access = (value) => (typeof value !== "object" || value === null ? "" : value.only ? names(value.only) : value.except ? `all but ${names(value.except)}` : "");

/** `{kind, name}` of what an event is about. */
function target(of) {
  const [[kind, what]] = Object.entries(of);
  if (typeof what === "string") return { kind: heading(kind), name: what };
  if (kind === "site") return { kind: heading(what.kind), name: what.name };
  const name = what.name || what.job || what.run;
  return { kind: heading(kind), name: what.project ? `${name} of ${what.project}` : `${name}` };
}

/** What happened, and the words that belong to it. */
function happened(what) {
  if (typeof what === "string") return { did: word(what), words: "" };
  const [[did, words]] = Object.entries(what);
  return { did: word(did), words };
}

const EVENT = [
  ["Time", (one) => when(one.at)], ["Who", (one) => one.actor ?? "the cluster"], ["What", (one) => happened(one.what).did],
  ["Kind", (one) => target(one.target).kind], ["Name", (one) => target(one.target).name],
  ["Details", (one) => [happened(one.what).words, one.info].filter(Boolean).join("; ")],
];

const tokenOf = ({ of }) => of.user?.name ?? (of.nodes ? `nodes ${names(of.nodes)}` : `nodes ${of.group.pattern}, ${of.group.used} of ${of.group.count}`);

const GROUP_LIMITS = [
  ["Together", (one) => amounts(one.group_tres)], ["Minutes together", (one) => amounts(one.group_tres_minutes)],
  ["Minutes that run together", (one) => amounts(one.group_tres_run_minutes)], ["Jobs together", (one) => one.group_jobs],
  ["Jobs that gain priority together", (one) => one.group_jobs_accrue], ["Jobs in the queue together", (one) => one.group_submit], ["Time together", (one) => limit(one.group_wall)],
];
const JOB_LIMITS = [
  ["Time of a job", (one) => limit(one.max_wall)], ["Each job", (one) => amounts(one.max_tres_per_job)], ["Each node of a job", (one) => amounts(one.max_tres_per_node)],
  ["Minutes of each job", (one) => amounts(one.max_tres_minutes_per_job)],
];
const ofLimits = (columns) => columns.map(([head, value]) => [head, (one) => value(one.limits ?? {})]);
const ofReservation = (columns) => columns.map(([head, value]) => [head, (one) => value(one.reservation)]);
const ofMachine = (columns) => columns.map(([head, value]) => [head, (one) => value(one.machine)]);

/** By what the server calls each list. */
export const COLUMNS = {
  events: EVENT,
  audit: EVENT,
  tokens: [
    ["Name", (one) => one.name], ["Of", tokenOf], ["May do at most", (one) => one.of.user?.limit], ["State", (one) => one.status],
    ["Made", (one) => when(one.made)], ["Expires", (one) => (one.expires ? time(one.expires) : "never")], ["Last use", (one) => when(one.last_use)],
  ],
  reservations: [
    ...ofReservation([
      ["Name", (one) => one.name], ["Start", (one) => when(one.start)], ["End", (one) => when(one.end)], ["Nodes", (one) => names(one.nodes)], ["Users", (one) => access(one.users)],
      ["Groups", (one) => names((one.groups ?? []).map(([name]) => name))], ["Accounts", (one) => access(one.accounts)], ["Partition", (one) => one.partition],
      ["Licenses", (one) => names((one.licenses ?? []).map(([name, count]) => `${name}: ${count}`))], ["Features", (one) => one.features], ["Kind", (one) => names((one.flags ?? []).map(word))],
    ]),
    ["CPUs", (one) => one.cpus], ["Now", (one) => (one.active ? "in force" : "")],
  ],
  accounts: [
    ["Account", (one) => one.name], ["Description", (one) => one.description], ["Organization", (one) => one.organization], ["Parent", (one) => one.parent],
    ["Coordinators", (one) => names(one.coordinators)],
  ],
  associations: [
    ["Account", (one) => one.account], ["User", (one) => one.user], ["Partition", (one) => one.partition], ["Shares", (one) => one.shares], ["Default", (one) => yes(one.default)],
    ["QOS", (one) => names(one.qos)], ["Default QOS", (one) => one.default_qos], ["Priority", (one) => one.priority],
    ...ofLimits([...GROUP_LIMITS, ...JOB_LIMITS, ["Running jobs", (one) => one.max_jobs], ["Jobs that gain priority", (one) => one.max_jobs_accrue],
      ["Jobs in the queue", (one) => one.max_submit], ["Least priority", (one) => one.min_priority_threshold]]),
  ],
  qos: [
    ["QOS", (one) => one.name], ["Description", (one) => one.description], ["Priority", (one) => one.priority], ...JOB_LIMITS,
    ["Each user", (one) => amounts(one.max_tres_per_user)], ["Running jobs of a user", (one) => one.max_jobs_per_user], ["Jobs of a user in the queue", (one) => one.max_submit_per_user],
    ["Jobs of a user that gain priority", (one) => one.max_jobs_accrue_per_user],
    ["Each account", (one) => amounts(one.max_tres_per_account)], ["Running jobs of an account", (one) => one.max_jobs_per_account],
    ["Jobs of an account in the queue", (one) => one.max_submit_per_account], ["Jobs of an account that gain priority", (one) => one.max_jobs_accrue_per_account],
    ...GROUP_LIMITS, ["Least of each job", (one) => amounts(one.min_tres_per_job)],
    ["Usage counts", (one) => (one.usage_factor === 1e6 || one.usage_factor === undefined ? "" : `× ${one.usage_factor / 1e6}`)],
    ["Usage threshold", (one) => factor(one.usage_threshold)], ["Limits count", (one) => factor(one.limit_factor)], ["Least priority", (one) => one.min_priority_threshold],
    ["May preempt", (one) => names(one.preempt)], ["Preempted by", (one) => one.preempt_mode], ["Safe from preemption", (one) => seconds(one.preempt_exempt_s)],
    ["Grace time", (one) => seconds(one.grace_time_s)], ["Flags", (one) => names((one.flags ?? []).map(word))],
  ],
  roles: [["User", (one) => one.user], ["Role", (one) => one.role]],
  rows: [
    ["Account", (one) => "\u2003".repeat(one.depth) + one.association.account], ["User", (one) => one.association.user], ["Partition", (one) => one.association.partition],
    ["Shares", (one) => one.association.shares], ["Part of the shares", (one) => percent(one.shares)], ["Part of the usage", (one) => percent(one.usage)],
    ["Usage that counts", (one) => percent(one.effective_usage)], ["Level", (one) => (typeof one.level === "number" ? one.level.toFixed(2) : "")],
    ["Fair share", (one) => (typeof one.fair_share === "number" ? one.fair_share.toFixed(3) : "")],
    ["Used", (one) => used(one.spent)], ["Minutes that run", (one) => amounts(one.run_minutes)],
  ],
  qos_usage: [["QOS", (one) => one.name], ["Used", (one) => used(one)]],
  projects: [
    ["Project", (one) => one.name], ["Owner", (one) => one.owner], ["Created", (one) => when(one.created)],
    ["Members", (one) => names(Object.entries(one.members ?? {}).map(([name, role]) => `${name} (${role})`))], ["Default gateway", (one) => one.default_gateway],
  ],
  fleets: [
    ["Fleet", (one) => one.name], ["Project", (one) => one.project], ["Created", (one) => when(one.created)],
    ["Hosts", (one) => names(one.hosts.map((host) => `${host.number}: ${host.node} (${word(host.state)}${host.failure ? `: ${host.failure}` : ""})`))],
  ],
  partitions: [
    ["Partition", (one) => one.name], ["State", (one) => one.state.toLowerCase()], ["Default", (one) => yes(one.default)], ["Nodes", (one) => one.nodes],
    ["In service", (one) => `${one.nodes_in_service} of ${one.node_count}`], ["CPUs in use", (one) => `${one.cpus_in_use} of ${one.cpus}`],
    ["GPUs in use", (one) => (one.gpus ? `${one.gpus_in_use} of ${one.gpus}` : "")], ["Longest time", (one) => duration(one.longest_s)], ["QOS", (one) => one.qos],
  ],
  nodes: [
    ["Node", (one) => one.name], ["State", (one) => one.state], ["Reason", (one) => one.reason], ["Partitions", (one) => names(one.partitions)], ["Jobs", (one) => one.jobs],
    ["CPUs in use", (one) => `${one.cpus_used} of ${one.cpus}`], ["Memory in use", (one) => `${bytes(one.memory_used)} of ${bytes(one.memory)}`],
    ["GPUs in use", (one) => (one.gpus.length ? `${one.gpus.filter((gpu) => gpu.used).length} of ${one.gpus.length} ${names([...new Set(one.gpus.map((gpu) => gpu.kind).filter(Boolean))])}` : "")],
    ["Load", (one) => (one.load / 100).toFixed(2)],
  ],
  sources: [
    ["Backend", (one) => one.name], ["Kind", (one) => one.kind], ["Project", (one) => one.project], ["Regions", (one) => names(one.regions)], ["Offers", (one) => one.offers],
    ["Machines", (one) => `${one.machines} of ${one.machines_max}`], ["Dollars an hour", (one) => price(one.price_hour)], ["This month", (one) => cost(one.month)],
    ["Of that idle", (one) => cost(one.idle)], ["Budget", (one) => cost(one.budget)], ["Fails", (one) => one.failure], ["Left alone after", (one) => one.paused?.text], ["Until", (one) => when(one.paused?.until)], ["Notes", (one) => names(one.notices)], ["Machines that nobody asked for", (one) => names(one.strangers)],
  ],
  machines: [
    ...ofMachine([
      ["Node", (one) => one.node], ["Source", (one) => one.source], ["Offer", (one) => one.offer?.id], ["Phase", (one) => word(typeof one.phase === "object" ? Object.keys(one.phase)[0] : one.phase)], ["Job", (one) => one.job],
      ["Dollars an hour", (one) => price(one.offer?.price)], ["Asked for", (one) => when(one.asked)], ["Made", (one) => when(one.made)], ["Joined", (one) => when(one.joined)],
      ["Gone", (one) => when(one.gone)], ["Id", (one) => one.id], ["Fails", (one) => one.failure?.text ?? one.failure?.kind],
    ]),
    ["Idle", (one) => yes(one.idle)], ["Cost", (one) => cost(one.cost)],
  ],
  budgets: [
    ["Account", (one) => one.account], ["A month", (one) => cost(one.month)], ["Spent", (one) => cost(one.spent)], ["Dollars an hour", (one) => price(one.price_hour)],
    ["Warned of", (one) => yes(one.warned)],
  ],
  volumes: [
    ["Volume", (one) => one.name], ["Project", (one) => one.project], ["Owner", (one) => one.owner], ["State", (one) => one.state], ["In", (one) => placeOf(one.place)],
    ["Size", (one) => (one.size ? bytes(one.size) : "")], ["Created", (one) => when(one.created)], ["Jobs", (one) => names(one.jobs)],
  ],
  licenses: [["License", (one) => one.name], ["Total", (one) => one.total], ["Used", (one) => one.used], ["Reserved", (one) => one.reserved]],
  secrets: [["Secret", (one) => one.name]],
  agents: [
    ["Node", (one) => one.node], ["Kind", (one) => (one.login ? "login node" : "")], ["Address", (one) => one.address], ["Version", (one) => one.version],
    ["Connected since", (one) => when(one.connected)], ["Joined", (one) => when(one.joined?.at)], ["By", (one) => one.joined?.method], ["Token", (one) => one.joined?.token],
    ["Certificate ends", (one) => when(one.joined?.certificate_end)], ["May join again until", (one) => when(one.rejoin_until)],
  ],
  services: [
    ["Service", (one) => one.service], ["User", (one) => one.user], ["Account", (one) => one.account], ["Running", (one) => one.running], ["Waiting", (one) => one.waiting],
    ["Requests", (one) => one.requests],
  ],
};

/** Titles that are not the server's own names. */
export const TITLES = { rows: "Shares", qos: "QOS", qos_usage: "Usage of QOS", sources: "Backends", roles: "Roles", associations: "Users and limits" };

const factor = (millionths) => (millionths === null || millionths === undefined ? "" : String(millionths / 1e6));
const seconds = (count) => (count ? duration(count) : "");

/** CPU and GPU hours. */
function used(usage) {
  const hours = (kind) => (usage?.tres_s?.[kind] ?? 0) / 3600;
  const parts = [["CPU", "cpu"], ["GPU", "gres/gpu"]].filter(([, kind]) => hours(kind) > 0);
  return parts.map(([name, kind]) => `${hours(kind).toFixed(1)} ${name} hours`).join(", ");
}

function placeOf(place) {
  const [[kind, where]] = Object.entries(place);
  if (typeof where === "string") return `${kind === "node" ? "node" : "shared folder"} ${where}`;
  return [word(kind), ...Object.values(where).filter((value) => typeof value === "string")].join(" ");
}
