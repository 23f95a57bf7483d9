// The server's API. A session that is over is told to whoever listens to `session`.

import { TIMEOUT_MS, forgetPrefetched, prefetched } from "./prefetch.js";

export const session = new EventTarget();

/** A refusal of the server, in its own words. Status 0: it does not answer. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request, and reads the whole answer by `read`. */
async function send(method, path, body, read = (answer) => answer.json()) {
  try {
    return await exchange(method, path, body, read);
  } catch (error) {
    if (error instanceof Refused) throw error;
    const isLate = error.name === "TimeoutError" && method !== "GET";
    throw new Refused(0, isLate ? "the server does not answer: look whether it was done before you try again" : "the server does not answer");
  }
}

async function exchange(method, path, body, read) {
  const answer = await (method === "GET" && prefetched(path) || fetch(`/api/web/${path}`, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: body === undefined ? {} : { "content-type": "application/json" },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }));
  if (answer.ok) return read(answer);
  const text = await answer.text();
  if (answer.status === 401) {
    forgetPrefetched();
    session.dispatchEvent(new Event("over"));
  }
  throw new Refused(answer.status, errorOf(text));
}

function errorOf(text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text.trim();
  }
}

export const get = (path) => send("GET", path);
export const post = (path, body = {}) => send("POST", path, body);
export const remove = (path) => send("DELETE", path);

/** The end of a job's output, `{text, size}` with its size in bytes. */
export const log = (job, bytes) => send("GET", `logs?job=${job}&last=${bytes}`, undefined, async (answer) => {
  const content = await answer.arrayBuffer();
  return { text: new TextDecoder().decode(content), size: content.byteLength };
});
