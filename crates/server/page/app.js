// The page: who is signed in, and the form for those who are not.

const main = document.getElementById("main");
const head = document.getElementById("head");

async function ask(method, body) {
  const answer = await fetch("/api/web/session", {
    method,
    body: body && JSON.stringify(body),
    headers: body ? { "content-type": "application/json" } : {},
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function show(profile) {
  const out = element("button", { type: "button" }, "Sign out");
  out.addEventListener("click", () => ask("DELETE").then(() => signIn("")));
  head.replaceChildren(element("b", {}, profile.cluster), ` ${profile.user} (${profile.role}) `, out);
  main.replaceChildren(element("h1", {}, "Signed in"));
}

function signIn(why) {
  const token = element("input", { type: "password", id: "token", required: true, autocomplete: "off" });
  const said = element("p", { role: "alert", className: "error" }, why);
  const form = element("form", { className: "sign-in" },
    element("h1", {}, "Sign in"),
    element("label", { htmlFor: "token" }, "Token"), token,
    element("button", { type: "submit" }, "Sign in"), said);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask("POST", { token: token.value.trim() }).then(show, (error) => { said.textContent = error.message; });
  });
  head.replaceChildren();
  main.replaceChildren(form);
  token.focus();
}

ask("GET").then(show, () => signIn(""));
