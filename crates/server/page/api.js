// The server's API. A session that is over is told to whoever listens to `session`.

import { forgetPrefetched, prefetched } from "./prefetch.js";

export const session = new EventTarget();

/** A refusal of the server, in its own words. Status 0: it does not answer. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function send(method, path, body) {
  let answer;
  try {
    answer = await (method === "GET" && prefetched(path) || fetch(`/api/web/${path}`, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: body === undefined ? {} : { "content-type": "application/json" },
    }));
  } catch {
    throw new Refused(0, "the server does not answer");
  }
  if (answer.ok) return answer;
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

export const get = (path) => send("GET", path).then((answer) => answer.json());
export const post = (path, body = {}) => send("POST", path, body).then((answer) => answer.json());
export const remove = (path) => send("DELETE", path).then((answer) => answer.json());

/** The end of a job's output. */
export const log = (job, bytes) => send("GET", `logs?job=${job}&last=${bytes}`).then((answer) => answer.text());
