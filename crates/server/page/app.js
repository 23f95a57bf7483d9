// The frame of the page: who is signed in, which view the address names, and what has changed meanwhile.

// Whatever is loaded first, the first requests are sent before anything else asks.
import "./first_requests.js";
import { get, remove, session } from "./api.js";
import { listen, onChange } from "./changes.js";
import { h, notice, noticeOfView } from "./dom.js";
import { forgetPrefetched } from "./prefetch.js";
import { queue } from "./queue_store.js";
import { address, route } from "./router.js";
import { lacksSession, noteSession } from "./session_note.js";
import { restoreAddress, signInForm } from "./sign_in.js";
import { loadOtherViews, loadView, loadedView } from "./views.js";

const MENU = [["overview", "Overview"], ["queue", "Queue"], ["timeline", "Timeline"], ["submit", "Submit"], ["usage", "Usage"], ["lists", "More"]];

const main = document.getElementById("main");
const head = document.getElementById("head");

let profile = null;
let view = null;
/** Counts what was asked to be shown: a view that is loaded too late is not. */
let asks = 0;
/** The view that is shown lacks what the server did not answer. */
let isIncomplete = false;

function drawHead(name) {
  const out = h("button", { type: "button", onclick: () => remove("session").then(signedOut, notSignedOut) }, "Sign out");
  head.replaceChildren(
    h("b", { class: "cluster" }, profile.cluster),
    h("nav", { "aria-label": "Views" }, MENU.map(([key, title]) => h("a", { href: address(key), "aria-current": key === name && "page" }, title))),
    h("span", { class: "who" }, `${profile.user} (${profile.role}) `, out));
}

/** Where the views of this page were scrolled to, by the entries of its history: `{window, view}`. */
const places = new Map();
let entry = null;
history.scrollRestoration = "manual";

/** Keeps the place of the view that is left; the place that the next one was at, if it is come back to. */
function placeOfEntry() {
  if (view && entry !== null) places.set(entry, { window: window.scrollY, view: view.kept?.() });
  entry = history.state?.entry ?? null;
  const known = places.get(entry);
  if (entry === null) {
    entry = `${performance.timeOrigin + performance.now()}`;
    history.replaceState({ entry }, "");
  }
  return known;
}

async function show() {
  if (!profile) return;
  const place = placeOfEntry();
  const asked = { ...route(), kept: place?.view };
  const own = ++asks;
  drawHead(asked.name);
  let make = loadedView(asked.name);
  if (!make) {
    make = await loadView(asked.name).catch(() => notLoaded);
    if (own !== asks || !profile) return;
  }
  view?.close();
  const shown = make(asked, profile);
  view = shown;
  isIncomplete = false;
  document.title = `${shown.title} · ${profile.cluster}`;
  noticeOfView(isLost ? LOST : "");
  main.replaceChildren(shown.element);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  try {
    await shown.ready;
    if (place && own === asks) scrollTo(0, place.window);
  } catch (error) {
    if (view !== shown || error.status === 401) return;
    isIncomplete = error.status === 0;
    main.prepend(h("p", { class: "error", role: "alert" }, error.message));
  }
}

/** In place of a view whose modules could not be fetched. */
const notLoaded = () => ({
  title: "Not loaded",
  element: h("p", { class: "error", role: "alert" }, "The server does not answer: load the page again when it does."),
  update: () => {},
  close: () => {},
});

function signedOut() {
  noteSession(false);
  if (!profile && document.getElementById("token")) return;
  profile = null;
  view?.close();
  view = null;
  queue.forget();
  head.replaceChildren();
  drawSignIn();
}

/** Without an answer the session may still be open: the next visit asks. */
function notSignedOut(error) {
  signedOut();
  if (error.status !== 401) noteSession(null);
}

function drawSignIn() {
  document.title = "Sign in · Sluice";
  main.replaceChildren(signInForm((who) => {
    begin(who);
    others.postMessage("signed in");
  }));
  document.getElementById("token").focus();
}

function begin(who) {
  profile = who;
  noteSession(true);
  show();
  forgetPrefetched();
  // At first the stream says that everything has changed: what is fetched then must not hold up the first view.
  Promise.resolve(view?.drawn).catch(() => {}).then(() => {
    if (!profile) return;
    listen();
    loadOtherViews();
  });
}

/** A server that did not answer the first request is asked again. */
const RETRY_MS = 10_000;

function start() {
  get("session").then((who) => profile || begin(who), (error) => {
    if (error.status === 401) return;
    main.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    if (error.status === 0) setTimeout(start, RETRY_MS);
  });
}

/** Other tabs of this browser have the same session. */
const others = new BroadcastChannel("sluice-session");
others.addEventListener("message", () => {
  if (!profile) get("session").then((who) => profile || begin(who)).catch(() => {});
});

const LOST = "The server does not answer; the page goes on when it does.";
let isLost = false;

onChange((what) => {
  if (!profile) return;
  if (what.kind === "signed_out") signedOut();
  else if (what.kind === "lost") {
    isLost = true;
    notice(LOST);
    // A stream does not say why it was refused: a session that is over shows the form to sign in by this.
    get("session").catch(() => {});
  } else {
    if (isLost) notice("");
    isLost = false;
    update(what);
  }
});

/** What changed while nobody saw the page: it is fetched when somebody does. */
let unseen = null;

function update(what) {
  if (document.hidden) unseen = { jobs: unseen?.jobs || what.jobs, nodes: unseen?.nodes || what.nodes, lists: unseen?.lists || what.lists };
  else updateView(what);
}

/** A view that could not be filled in is made anew: what was said of it is out of date. */
function updateView(what) {
  if (isIncomplete) show();
  else view?.update(what);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !unseen) return;
  const what = unseen;
  unseen = null;
  updateView(what);
});

// The address belongs to the views.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

session.addEventListener("over", signedOut);
window.addEventListener("hashchange", show);
restoreAddress();
if (lacksSession()) signedOut();
else start();
