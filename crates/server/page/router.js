// The address is the state of the page: `#/queue?state=PENDING&mine=1`.

/** An address that somebody typed wrongly is taken as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decoded);
  return { name: name || "overview", parts, query: new URLSearchParams(query ?? "") };
}

export function address(name, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== false && value !== null);
  const text = new URLSearchParams(kept).toString();
  return `#/${name}${text ? `?${text}` : ""}`;
}

export const arrayAddress = (id) => `#/array/${id}`;
export const jobAddress = (id) => `#/job/${id}`;

/** Changes the address without an entry in the history, and without drawing the page anew. */
export function replaceAddress(name, query) {
  history.replaceState(history.state, "", address(name, query));
}
