// Signing in: with a token, or at the site's identity provider where there is one.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { noteSession } from "./session_note.js";

/** Where the address is kept while the browser is at the provider, in this tab alone. */
const KEPT_ADDRESS = "sluice-address";

/** The form; `begin` is called with who signed in. */
export function signInForm(begin) {
  const token = h("input", { type: "password", id: "token", required: true, autocomplete: "off" });
  const said = h("p", { role: "alert", class: "error" });
  const provider = h("p", { hidden: true });
  const submit = async (event) => {
    event.preventDefault();
    said.textContent = "";
    try {
      begin(await post("session", { token: token.value.trim() }));
    } catch (error) {
      said.textContent = error.message;
    }
  };
  showProvider(provider);
  return h("form", { class: "sign-in", onsubmit: submit },
    h("h1", {}, "Sign in"), provider,
    h("label", { for: "token" }, "Token"), token,
    h("button", { type: "submit" }, "Sign in"), said,
    h("p", { class: "hint" }, "`sluice token user NAME` makes one; on the server's machine there is admin.token in the state folder."));
}

async function showProvider(place) {
  // Without an answer a token is still a way in.
  const { issuer, start } = await get("oidc").catch(() => ({}));
  if (!start) return;
  const leave = () => {
    sessionStorage.setItem(KEPT_ADDRESS, location.hash);
    // Whoever comes back may be signed in, in another tab too.
    noteSession(null);
  };
  place.append(h("a", { class: "button", href: start, onclick: leave, onauxclick: () => noteSession(null) }, `Sign in at ${new URL(issuer).host}`));
  place.hidden = false;
}

/** Back from the provider, the page shows the view that it was left at. */
export function restoreAddress() {
  const kept = sessionStorage.getItem(KEPT_ADDRESS);
  sessionStorage.removeItem(KEPT_ADDRESS);
  // Pages of jobs may have this origin: what they keep is no address of a view.
  if (kept?.startsWith("#") && !location.hash) history.replaceState(null, "", kept);
}
