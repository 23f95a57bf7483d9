// What a program wrote to a terminal, as the terminal would have left it: lines that are written over, and no sequences that colour them.

/** Sequences of a terminal: those of colours and the cursor, of titles, and of two letters. */
// eslint-disable-next-line no-control-regex
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()*+][ -~]|[@-Z\\-_=>78])/g;
/** Erases the line. */
// eslint-disable-next-line no-control-regex
const ERASED = /\x1b\[[02]?K/;

/** The text as lines that are read. */
export function readable(text) {
  if (!/[\x1b\r]/.test(text)) return text;
  return text.replaceAll("\r\n", "\n").split("\n").map(readableLine).join("\n");
}

/** A carriage return goes back to the line's beginning: what comes next is written over it. Read from the last part on, so that a long
 * line that is written over again and again is copied once. */
function readableLine(line) {
  if (!line.includes("\r")) return line.replace(SEQUENCES, "");
  const parts = line.split("\r");
  const shown = [];
  let length = 0;
  for (let at = parts.length - 1; at >= 0; at -= 1) {
    const written = parts[at].replace(SEQUENCES, "");
    if (written.length > length) {
      shown.push(written.slice(length));
      length = written.length;
    }
    if (ERASED.test(parts[at])) break;
  }
  return shown.join("");
}

/** How much of a text the next one is looked for by. */
const ANCHOR = 128;

/** Makes a text node say `next`, which goes on where the node's text ends, and may begin later: what stays is not written anew, so
 * that it stays selected too. `isKept`: what comes before `next` stays as well. */
export function goOn(node, next, isKept) {
  const former = node.data;
  let begin = former === "" || next.startsWith(former.slice(0, ANCHOR)) ? 0 : whereBegins(former, next);
  if (begin === null) {
    node.data = next;
    return;
  }
  if (begin < 0) {
    // More of what came before was asked for.
    node.insertData(0, next.slice(0, -begin));
    begin = 0;
  } else if (begin > 0 && !isKept) {
    node.deleteData(0, begin);
    begin = 0;
  }
  const rest = node.data;
  let same = 0;
  while (same < next.length && begin + same < rest.length && next[same] === rest[begin + same]) same += 1;
  node.replaceData(begin + same, rest.length - begin - same, next.slice(same));
}

/** Where in the former text the next one begins; less than nothing where it begins before it. The first line may be a part of one. */
function whereBegins(former, next) {
  const found = (text, within) => {
    const line = text.indexOf("\n") + 1;
    const at = within.indexOf(text.slice(line, line + ANCHOR));
    return line < text.length && at >= line ? at - line : null;
  };
  const later = found(next, former);
  if (later !== null) return later;
  const earlier = found(former, next);
  return earlier === null ? null : -earlier;
}
