// Times and amounts as a person reads them.

/** The server's clock less this machine's, in milliseconds. */
let ahead = 0;

export function setClock(now) {
  ahead = now - Date.now();
}

export const now = () => Date.now() + ahead;

/** Writes times in one form. What does so takes a browser long to make, and the first view has no time to write. */
function timeFormat(parts) {
  let made = null;
  return (at) => {
    made ??= new Intl.DateTimeFormat(undefined, parts);
    return made.format(at);
  };
}

const clock = timeFormat({ hour: "2-digit", minute: "2-digit" });
const date = timeFormat({ month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit" });
const year = timeFormat({ year: "numeric", month: "short", day: "2-digit" });

const DAY = 86_400_000;

/** The time on the same day, else the date too. */
export function time(at) {
  if (at === undefined || at === null) return "–";
  const distance = Math.abs(at - now());
  if (distance > 300 * DAY) return year(at);
  const sameDay = new Date(at).toDateString() === new Date(now()).toDateString();
  return (sameDay ? clock : date)(at);
}

/** `1-02:03:04`, as Slurm writes it. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "unlimited";
  const whole = Math.max(0, Math.floor(seconds));
  const two = (number) => String(number).padStart(2, "0");
  const [days, hours] = [Math.floor(whole / 86_400), Math.floor(whole / 3600) % 24];
  const rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  if (days) return `${days}-${two(hours)}:${rest}`;
  return hours ? `${hours}:${rest}` : rest;
}

const wholeSeconds = (at) => Math.floor(at / 1000);

/** How long a job has run. Both ends count as whole seconds, as they do for `sacct` and in what a job has used. */
export function elapsed(job) {
  if (job.waiting || !job.start) return "–";
  return duration(wholeSeconds(job.ended ? job.end : now()) - wholeSeconds(job.start));
}

export function bytes(amount) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let left = amount;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left >= 10 || unit === 0 ? Math.round(left) : left.toFixed(1)} ${units[unit]}`;
}

/** How many colours of users there are in page.css, and a step that comes by all of them. */
const [COLOURS, STEP] = [12, 5];

/** The names that have a colour, and the colours that are taken; as many names as there are colours. */
const colours = new Map();

/** One of twelve colours for a name, always the same while the page is open. The first twelve names have one each; of others a colour
 * may be that of one of these. */
export function colour(name) {
  const known = colours.get(name);
  if (known !== undefined) return `c${known}`;
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  let own = sum % COLOURS;
  if (colours.size < COLOURS) {
    const taken = new Set(colours.values());
    while (taken.has(own)) own = (own + STEP) % COLOURS;
    colours.set(name, own);
  }
  return `c${own}`;
}

/** Words that are written in another way than in small letters. */
const SPELLED = { tres: "TRES", qos: "QOS", cpu: "CPU", cpus: "CPUs", gpu: "GPU", gpus: "GPUs", id: "ID", ssh: "SSH", uid: "UID", s: "(s)" };

/** The name of a list or a field as a heading: `max_tres_per_job` is "Max TRES per job". */
export function heading(name) {
  const text = name.split("_").map((word) => SPELLED[word] ?? word).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
