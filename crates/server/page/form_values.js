// What is typed into a field, as the server's calls want it. Nothing typed is `undefined`, which leaves what there is; `-1` is
// `null`, which takes it away.

export const optional = (text) => (text === "" || text === undefined ? undefined : text === "-1" ? null : text);

export const names = (text) => text.split(/[\s,]+/).filter(Boolean);

/** A host list, as `cpu[1-2,4]`: the server says which names it stands for. */
export const hosts = (text) => [text];

export function count(text) {
  const typed = optional(text);
  if (typed === undefined || typed === null) return typed;
  if (!/^\d+$/.test(typed)) throw new Error(`${typed}: expected a number`);
  return Number(typed);
}

/** A time limit. */
export function minutes(text) {
  const number = count(text);
  return number === undefined || number === null ? number : { Minutes: number };
}

const MEBIBYTES = { M: 1, G: 1024, T: 1_048_576 };

/** `cpu=64,mem=512G,gres/gpu=8`; an empty list takes all away. */
export function amounts(text) {
  const typed = optional(text);
  if (typed === undefined) return undefined;
  if (typed === null) return {};
  return Object.fromEntries(names(typed).map((part) => {
    const [, kind, number, unit] = /^([a-z/:_0-9-]+)=(\d+)([MGT]?)$/i.exec(part) ?? [];
    if (!kind || (unit && kind !== "mem")) throw new Error(`${part}: expected an amount, as cpu=64, mem=512G or gres/gpu=8`);
    return [kind, Number(number) * (MEBIBYTES[unit?.toUpperCase()] ?? 1)];
  }));
}

/** The object with these properties: `undefined` leaves one as it is, `null` takes it away. */
export function edited(before, changes) {
  const after = { ...before };
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) continue;
    if (value === null) delete after[key];
    else after[key] = value;
  }
  return after;
}
