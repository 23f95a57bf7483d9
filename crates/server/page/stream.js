// The stream of changes. It is opened again when it breaks; `tell` gets what happened.

/** After a refusal, for one when there are too many streams. */
const RETRY_MS = 10_000;
/** The server says something each quarter of a minute: one that is silent for so long hangs, or cannot be reached. */
const SILENCE_MS = 25_000;

export function openStream(tell) {
  let source;
  let retry;
  let silence;
  let isClosed = false;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => {
      source.close();
      tell({ kind: "lost" });
      open();
    }, SILENCE_MS);
  };
  const open = () => {
    source = new EventSource("/api/web/events");
    heard();
    for (const name of ["hello", "change", "alive"]) source.addEventListener(name, heard);
    // What changed while there was no stream is not known: everything may have.
    source.addEventListener("hello", () => tell({ kind: "change", jobs: true, nodes: true, lists: true }));
    source.addEventListener("change", (event) => tell({ kind: "change", ...JSON.parse(event.data) }));
    source.addEventListener("signed_out", () => {
      close();
      tell({ kind: "signed_out" });
    });
    source.addEventListener("error", () => {
      if (isClosed) return;
      tell({ kind: "lost" });
      // A browser repeats a connection that broke, and not one that was refused.
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(silence);
      clearTimeout(retry);
      retry = setTimeout(open, RETRY_MS);
    });
  };
  const close = () => {
    isClosed = true;
    clearTimeout(retry);
    clearTimeout(silence);
    source.close();
  };
  open();
  return close;
}
