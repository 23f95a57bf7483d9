// A shell in a job: a terminal, and the socket that its bytes go over.

import { FitAddon } from "./addon-fit.js";
import { post } from "./api.js";
import { h, notice } from "./dom.js";
import { jobAddress } from "./router.js";
import { Terminal } from "./xterm.js";

/** The server takes no longer messages. */
const MESSAGE_BYTES = 16_384;
/** The server is told what was shown this often; it waits at a megabyte. */
const SHOWN_BYTES = 131_072;

const query = new URLSearchParams(location.search);
/** `12`, or `12_3` for a task of an array: the server says what is no job. */
const job = query.get("job") ?? "";
const rank = query.get("rank") ?? "0";
const RANK = /^\d{1,6}$/;

/** The policy of this page takes style elements with its nonce, and the terminal makes some. It takes no style attributes: those
 * become properties, which no policy bounds. */
function allowStyles() {
  const nonce = document.querySelector("meta[name=style-nonce]").content;
  const make = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const element = make(name, options);
    if (name === "style") element.nonce = nonce;
    return element;
  };
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function setAttribute(name, value) {
    if (name === "style") this.style.cssText = value;
    else set.call(this, name, value);
  };
}

/** A row of no more than the font's own height cuts what is below the letters: underscores would not be seen. */
const LINE_HEIGHT = 1.2;

function makeTerminal() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark
    ? { background: "#14171a", foreground: "#e8eaec", cursor: "#e8eaec" }
    : { background: "#ffffff", foreground: "#1c2126", cursor: "#1c2126", selectionBackground: "#b5d5ff" };
  return new Terminal({ fontFamily: "ui-monospace, monospace", fontSize: 14, lineHeight: LINE_HEIGHT, scrollback: 5_000, minimumContrastRatio: 4.5, theme });
}

function draw(place) {
  const back = h("a", { href: `/${jobAddress(encodeURIComponent(job))}` }, `Job ${job}`);
  const reader = h("input", { type: "checkbox", id: "reader" });
  document.title = `Shell in job ${job} · Sluice`;
  document.getElementById("head").replaceChildren(h("nav", { "aria-label": "Back" }, back),
    h("span", {}, reader, h("label", { for: "reader" }, " for a screen reader")),
    h("span", { class: "who" }, "Alt+End leaves the terminal"));
  document.getElementById("main").replaceChildren(h("h1", {}, `Shell in job ${job}`), place);
  return { back, reader };
}

/** The socket of a new shell of this size. */
async function connect(terminal) {
  if (!RANK.test(rank)) throw new Error(`"${rank}" is no rank: the first node of the job is 0`);
  const { ticket } = await post(`jobs/${encodeURIComponent(job)}/shell`, { rank: Number(rank) });
  const asked = new URLSearchParams({ ticket, rows: terminal.rows, columns: terminal.cols });
  const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/api/web/shell?${asked}`);
  socket.binaryType = "arraybuffer";
  return socket;
}

/** Passes bytes on both ways until the shell ends. */
function join(terminal, socket) {
  let shown = 0;
  let told = 0;
  let end = "the server does not answer";
  const say = (what) => socket.readyState === WebSocket.OPEN && socket.send(what);
  const input = (bytes) => {
    for (let from = 0; from < bytes.length; from += MESSAGE_BYTES) say(bytes.subarray(from, from + MESSAGE_BYTES));
  };
  const encoder = new TextEncoder();
  terminal.onData((text) => input(encoder.encode(text)));
  terminal.onBinary((text) => input(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => say(JSON.stringify({ rows, columns: cols })));
  socket.addEventListener("open", () => {
    notice("");
    say(JSON.stringify({ rows: terminal.rows, columns: terminal.cols }));
    terminal.focus();
  });
  socket.addEventListener("message", ({ data }) => {
    if (typeof data === "string") {
      end = JSON.parse(data).ended ?? end;
      return;
    }
    terminal.write(new Uint8Array(data), () => {
      shown += data.byteLength;
      if (shown - told < SHOWN_BYTES) return;
      told = shown;
      say(JSON.stringify({ shown }));
    });
  });
  socket.addEventListener("close", () => {
    terminal.options.disableStdin = true;
    notice(`The shell has ended: ${end}. Load the page again for another.`);
  });
}

async function begin() {
  allowStyles();
  const place = h("div", { class: "terminal" });
  const { back, reader } = draw(place);
  const terminal = makeTerminal();
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  fit.fit();
  new ResizeObserver(() => fit.fit()).observe(place);
  reader.addEventListener("change", () => { terminal.options.screenReaderMode = reader.checked; });
  // The terminal takes the Tab key: there must be a way out of it.
  terminal.attachCustomKeyEventHandler((event) => {
    if (!event.altKey || event.key !== "End") return true;
    if (event.type === "keydown") back.focus();
    return false;
  });
  notice("The shell starts…");
  try {
    join(terminal, await connect(terminal));
  } catch (error) {
    notice(error.status === 401 ? "Sign in at the server's page first, and load this one again." : error.message);
  }
}

begin();
