// Whether this browser is known to have a session. A script cannot see the session's cookie: without this note the page would ask for
// what is refused before anybody has signed in.

const KEY = "sluice-session";

function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    // A browser that keeps nothing for the page.
    return null;
  }
}

/** Notes that there is a session, or that there is none; `null` that it is not known. */
export function noteSession(isOpen) {
  try {
    if (isOpen === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, isOpen ? "open" : "none");
  } catch {
    // As above.
  }
}

/** There is one, as far as is known. */
export const hasSession = () => read() === "open";
/** There is none: nobody needs to be asked. */
export const lacksSession = () => read() === "none";
