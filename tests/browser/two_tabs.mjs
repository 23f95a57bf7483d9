// Two tabs of one browser share one stream of changes: a browser opens six connections to a server and no more. And they share the
// page's files, which a browser keeps.

import assert from "node:assert/strict";
import http from "node:http";
import { newPage, settings, shell, show, signIn } from "./harness.mjs";

/** Passes requests on to the server, counts the streams that were asked for, and lists the files. */
async function counter() {
  const { hostname, port } = new URL(settings.base);
  const counts = { streams: 0, files: [] };
  const server = http.createServer((request, response) => {
    if (request.url === "/api/web/events") counts.streams += 1;
    if (request.url.startsWith("/web/")) counts.files.push(request.url);
    const onward = http.request({ hostname, port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  return { server, counts, base: `http://127.0.0.1:${server.address().port}` };
}

export async function twoTabs(browser) {
  const { server, counts, base } = await counter();
  const context = await browser.newContext({ locale: "en-GB" });
  try {
    const first = await newPage(context);
    await signIn(first, settings.token, base);
    await show(first, "queue", "Queue");
    const second = await newPage(context);
    await second.goto(`${base}/#/queue`);
    await second.waitForSelector(".list");
    const id = (await shell("sbatch --parsable -H -J seen-by-both -o /dev/null --wrap true")).trim();
    for (const page of [first, second]) await page.waitForSelector(`.list-row a[href="#/job/${id}"]`);
    assert.equal(counts.streams, 1);
    assert.ok(counts.files.length > 10, "the first tab has fetched the page's files");
    // The worker that both share has the module of the stream too, and may fetch it for itself.
    const ofPages = counts.files.filter((file) => !file.endsWith("/stream.js"));
    assert.deepEqual(ofPages.filter((file, index) => ofPages.indexOf(file) !== index), [], "no file is asked for twice");
    // A tab that is closed leaves the stream to the other.
    await first.close();
    const next = (await shell("sbatch --parsable -H -J seen-by-one -o /dev/null --wrap true")).trim();
    await second.waitForSelector(`.list-row a[href="#/job/${next}"]`);
    assert.deepEqual(second.faults, []);
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}
