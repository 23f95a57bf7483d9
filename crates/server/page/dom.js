// Elements from data. Texts become text nodes: nothing here reads markup from a string.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Properties that begin with "on" are listeners, all others attributes; without a value they are left out. */
export function h(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** The same for a drawing. */
export function svg(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** A table with a caption for those who cannot see where it stands. */
export function table(caption, heads, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}

/** The longest that `painted` waits: a browser may draw no frame of a window that is behind others, and does not say so. */
const PAINT_MS = 500;

/** Resolves when what was put into the page is on the screen; at once in a page that nobody sees. */
export function painted() {
  return new Promise((resolve) => {
    if (document.hidden) {
      resolve();
      return;
    }
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, PAINT_MS);
  });
}

/** Says something to the person, also to a screen reader. */
export function notice(text) {
  document.getElementById("notice").textContent = text;
}

let next = "";

/** Says something once the next view is shown, which clears what was said before. */
export function noticeThere(text) {
  next = text;
}

/** What is said when a view is shown: what was kept for it, else `usual`. */
export function noticeOfView(usual) {
  notice(next || usual);
  next = "";
}

/** Asks before something is changed; true when the person agrees. */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "question" },
      h("p", { id: "question" }, question),
      h("div", { class: "buttons" },
        h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Back"),
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, action)));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
