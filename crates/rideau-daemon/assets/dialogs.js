// Dialogs: an action with its impact, the login, the search, and the editor of the config.
import { h } from "./blocks.js";
import { act, ask, logIn, reload, to } from "./app.js";

let timer = 0;

/** A word about what was done. */
export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => (box.textContent = ""), 6000);
}

/** A dialog that is over when it is closed. */
function open(title, ...children) {
  const box = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), ...children);
  const before = document.activeElement;
  box.addEventListener("close", () => {
    box.remove();
    if (before?.isConnected) before.focus();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

/** Say what an action will do, ask, and do it. */
export function confirmAct(action) {
  const fault = h("p", { class: "fault", role: "alert" });
  const fields = action.fields.map((field) => h("label", {}, field.label, h("input", {
    name: field.name, value: field.value, type: field.is_number ? "number" : "text", min: field.is_number ? 0 : null, required: true,
  })));
  const sure = h("button", { class: action.is_hard ? "hard" : "main" }, action.label);
  const form = h("form", { method: "dialog" }, h("p", {}, action.impact), ...fields, fault,
    h("p", { class: "choice" }, h("button", { type: "button", onclick: () => box.close() }, "Cancel"), sure));
  const box = open(`${action.label}?`, form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    sure.disabled = true;
    const body = { ...action.body };
    for (const field of action.fields) {
      const value = form.elements[field.name].value;
      body[field.name] = field.is_number ? Number(value) : value;
    }
    try {
      await act(action.method, action.path, body);
      box.close();
      toast(`${action.label}: done.`);
      reload();
    } catch (error) {
      fault.textContent = error.message;
      sure.disabled = false;
    }
  };
}

export function askLogin() {
  if (document.querySelector("dialog[open]")) return;
  const fault = h("p", { class: "fault", role: "alert" });
  const form = h("form", { method: "dialog" },
    h("label", {}, "User, or empty for the operator", h("input", { name: "user", autocomplete: "username" })),
    h("label", {}, "Password, or the operator's token", h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true })),
    h("p", { class: "quiet" }, "The server writes a link with the operator's token when it starts; the token is in a file beside its control socket, too."),
    fault,
    h("p", { class: "choice" }, h("button", { type: "button", onclick: () => box.close() }, "Cancel"), h("button", { class: "main" }, "Log in")));
  const box = open("Log in", form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    try {
      await logIn(form.elements.user.value, form.elements.secret.value);
      box.close();
    } catch (error) {
      fault.textContent = error.message;
    }
  };
}

/** Search everything that has a name, an id or a page. */
export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  const found = h("ul", { class: "found" });
  const field = h("input", { type: "search", "aria-label": "A page, a name, or an id to explain", placeholder: "A page, a name, or an id to explain" });
  const box = open("Search", field, found);
  box.classList.add("palette");
  let asked = 0;
  const go = (link) => {
    box.close();
    location.hash = to(link);
  };
  const item = (label, link) => h("li", {}, h("a", { href: to(link), onclick: (event) => { event.preventDefault(); go(link); } }, label));
  const look = async () => {
    const text = field.value.trim();
    const mine = ++asked;
    const tabs = [...document.querySelectorAll("#nav a")].map((tab) => [tab.firstChild.data, tab.getAttribute("href").slice(2)]);
    const pages = tabs.filter(([label]) => label.toLowerCase().includes(text.toLowerCase()));
    found.replaceChildren(...pages.map(([label, link]) => item(label, link)));
    if (!text) return;
    const query = new URLSearchParams({ find: text, count: "8", span: "1s" });
    const places = ["pools", "brokers", "apps", "ranges", "locks"];
    const answers = await Promise.all(places.map((place) => ask(`/api/v1/page/${place}?${query}`).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null)));
    if (mine !== asked) return;
    const names = answers.flatMap((page) => page?.blocks.filter((block) => block.type === "table").flatMap((block) => block.rows.filter((row) => row.link).map((row) => [`${block.title}: ${row.cells[0].text}`, row.link])) ?? []);
    found.replaceChildren(...pages.map(([label, link]) => item(label, link)), ...names.slice(0, 20).map(([label, link]) => item(label, link)),
      item(`Explain ${text}`, `explain/${encodeURIComponent(text)}`), item(`Holders with ${text}`, `holders?find=${encodeURIComponent(text)}`));
  };
  field.oninput = look;
  field.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      const first = found.querySelector("a");
      event.key === "Enter" ? first?.click() : first?.focus();
    }
  };
  found.onkeydown = (event) => {
    const links = [...found.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown") links[at + 1]?.focus();
    else if (event.key === "ArrowUp") (links[at - 1] ?? field).focus();
    else return;
    event.preventDefault();
  };
  look();
  field.focus();
}

/** A change of the config: checked, planned, and applied after one has seen the plan. */
export function editor(block) {
  const area = h("textarea", { rows: 6, spellcheck: "false", "aria-label": "The change", placeholder: "pool.pg.max = 20" });
  const kind = (value, label, isOn) => h("label", {}, h("input", { type: "radio", name: "what", value, checked: isOn, onchange: () => {
    area.placeholder = value === "keys" ? "pool.pg.max = 20" : "# All of the new config.\n[pool.pg]\nmax = 20";
    area.rows = value === "keys" ? 6 : 20;
  } }), label);
  const said = h("pre", { class: "said", hidden: true, tabindex: "0", role: "region", "aria-label": "What the server says" });
  const say = (text, isFault) => {
    said.hidden = !text;
    said.textContent = text;
    said.classList.toggle("fault", isFault);
  };
  const isWhole = () => form.elements.what.value === "file";
  const path = (step) => (isWhole() ? `/api/v1/config/${step}` : `/api/v1/config/${step === "apply" ? "set" : "preview"}`);
  const send = (step) => act("POST", path(step), area.value, "application/toml");
  const failed = (error) => say(error.said?.text || error.message, true);
  const check = h("button", { type: "button" }, "Check");
  const plan = h("button", { type: "button", class: "main" }, "Plan");
  const apply = h("button", { type: "button" }, "Apply…");
  check.onclick = () => send(isWhole() ? "check" : "plan").then((answer) => say(isWhole() ? answer.text || "Nothing is wrong with it." : "Nothing is wrong with it."), failed);
  plan.onclick = () => send("plan").then((answer) => say(answer.text || "It changes nothing."), failed);
  apply.onclick = () => send("plan").then((answer) => {
    say(answer.text || "It changes nothing.");
    if (!answer.steps.length) return;
    const sure = h("button", { class: "main" }, "Apply");
    const fault = h("p", { class: "fault", role: "alert" });
    const ask = h("form", { method: "dialog" }, h("pre", { tabindex: "0" }, answer.text), fault, h("p", { class: "choice" }, h("button", { type: "button", onclick: () => box.close() }, "Cancel"), sure));
    const box = open(`Apply ${answer.steps.length === 1 ? "this change" : `these ${answer.steps.length} changes`}?`, ask);
    ask.onsubmit = (event) => {
      event.preventDefault();
      send("apply").then((done) => {
        box.close();
        toast("Applied.");
        say(`Applied:\n${done.text}`);
        reload();
      }, (error) => (fault.textContent = error.message));
    };
  }, failed);
  const form = h("form", { onsubmit: (event) => event.preventDefault() },
    h("p", { class: "choice" }, kind("keys", "Some keys, a line each", true), kind("file", "The whole file", false)),
    area, h("p", { class: "choice" }, check, plan, apply), said);
  const box = h("section", { class: "block editor act" }, h("h2", {}, block.title), form);
  box.renew = () => null;
  return box;
}
