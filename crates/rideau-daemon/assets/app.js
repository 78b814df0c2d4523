// Routes, the connection to the server, and what is around the pages. Pages come from the
// server as blocks; this only shows them.
import { h, show } from "./blocks.js";
import { askLogin, openPalette, toast } from "./dialogs.js";

const $ = (id) => document.getElementById(id);
const kept = {
  get: (name) => { try { return localStorage.getItem(name) ?? ""; } catch { return ""; } },
  set: (name, value) => {
    try { value ? localStorage.setItem(name, value) : localStorage.removeItem(name); } catch { /* Not kept. */ }
  },
};

let stop = new AbortController();
let route = read();
let again = 0;
let frame = {};

/** The page and the query of the address: `#/pools/pg?find=a`. */
function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path || "overview", query: new URLSearchParams(query ?? "") };
}

/** The address of a page. */
export const to = (path, query) => {
  const text = new URLSearchParams(query ?? {}).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
};

/** Go to the same page with another query; what is empty is left out. */
export function change(changes) {
  const query = new URLSearchParams(route.query);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  history.replaceState(null, "", to(route.path, query));
  route = read();
  load(false);
}

/** Ask the server for something. */
export async function ask(path, options = {}) {
  const headers = { "Rideau-Csrf": kept.get("rideau-key") || "page", ...options.headers };
  return fetch(path, { ...options, headers, credentials: "same-origin" });
}

/** Do something, and say how it went. Throws what the server says against it. */
export async function act(method, path, body, kind = "application/json") {
  const text = typeof body === "string" ? body : JSON.stringify(body ?? {});
  const answer = await ask(path, { method, body: text, headers: { "Content-Type": kind } });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(said.error ?? `The server answers ${answer.status}.`), { said });
  return said;
}

export const reload = () => load(false);

async function load(isNew) {
  stop.abort();
  if (document.hidden) return;
  clearTimeout(again);
  const mine = (stop = new AbortController());
  const query = new URLSearchParams(route.query);
  query.set("span", query.get("span") ?? "10m");
  try {
    const answer = await ask(`/api/v1/page/${route.path}?${query}`, { signal: mine.signal });
    if (answer.status === 401 || answer.status === 403) return refused(await answer.json());
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}));
      if (answer.status === 404) return missing(said.error);
      throw new Error(said.error ?? `The server answers ${answer.status}.`);
    }
    draw(await answer.json(), isNew);
    banner("");
    query.delete("span");
    await watch(query, mine);
  } catch (error) {
    if (mine.signal.aborted) return;
    banner(`No news from the server (${error.message}) Trying again.`);
  }
  if (!mine.signal.aborted) again = setTimeout(() => load(false), 3000);
}

/** Draw each page that comes, until the server ends it or the tab is hidden. */
async function watch(query, mine) {
  const answer = await ask(`/api/v1/watch/${route.path}?${query}`, { signal: mine.signal });
  if (answer.status === 503) {
    banner("As many pages are watched as may be: this one is loaded again every few seconds.");
    return;
  }
  if (!answer.ok) throw new Error(`The server answers ${answer.status}.`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The connection has ended.");
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const [event, data] = parse(text.slice(0, end));
      text = text.slice(end + 2);
      if (event === "page") draw(data, false);
      else if (event === "gone") return missing(data.error);
      else if (event === "denied") return refused(data);
    }
  }
}

function parse(text) {
  let event = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    if (line.startsWith("data:")) data += line.slice(5);
  }
  return [event, data ? JSON.parse(data) : null];
}

function draw(page, isNew) {
  frame = page.frame;
  document.title = `${page.title} · ${frame.name}`;
  if ($("title").textContent !== page.title) $("title").textContent = page.title;
  $("server").textContent = frame.name;
  $("state").textContent = `${frame.state} · ${frame.version}`;
  tabs();
  spans(page.blocks.some((block) => block.type === "chart"));
  $("login").textContent = frame.user ? `Log out ${frame.user}` : "Log in";
  show($("blocks"), page);
  const hint = frame.read_only;
  if (hint) note(hint);
  else document.getElementById("hint")?.remove();
  if (isNew) {
    window.scrollTo(0, 0);
    $("main").focus({ preventScroll: true });
  }
}

/** Why nothing can be changed here. */
function note(text) {
  let hint = document.getElementById("hint");
  if (!hint) {
    hint = h("p", { id: "hint", class: "quiet" });
    $("main").append(hint);
  }
  if (hint.textContent !== text) hint.textContent = text;
}

function tabs() {
  const place = route.path.split("/")[0];
  const near = { regulators: "brokers", clients: "holders", sessions: "holders", refusals: "events", explain: "events" };
  const now = near[place] ?? place;
  const nav = $("nav");
  const wanted = frame.tabs.map((tab) => `${tab.path} ${tab.count ?? ""} ${tab.path === now}`).join();
  if (nav.dataset.of === wanted) return;
  nav.dataset.of = wanted;
  const focused = document.activeElement?.getAttribute("href");
  nav.replaceChildren(...frame.tabs.map((tab) => h("a", {
    href: to(tab.path),
    "aria-current": tab.path === now ? "page" : null,
  }, tab.label, tab.count == null ? "" : h("span", { class: "count" }, ` ${tab.count}`))));
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  if (focused) [...nav.children].find((link) => link.getAttribute("href") === focused)?.focus();
}

function spans(hasCharts) {
  const box = $("spans");
  box.hidden = !hasCharts;
  const now = route.query.get("span") ?? "10m";
  if (box.dataset.of === now) return;
  box.dataset.of = now;
  const all = [["10m", "10 min"], ["6h", "6 h"]];
  box.replaceChildren(...all.map(([span, label]) => {
    const button = h("button", { type: "button", "aria-pressed": String(span === now) }, label);
    button.onclick = () => change({ span: span === "10m" ? "" : span });
    return button;
  }));
}

function banner(text) {
  $("banner").hidden = !text;
  if ($("banner").textContent !== text) $("banner").textContent = text;
}

function missing(text) {
  $("title").textContent = "Not here";
  $("blocks").replaceChildren(h("p", {}, text ?? "There is no such page."), h("p", {}, h("a", { href: to("overview") }, "To the overview")));
}

async function refused(said) {
  $("title").textContent = "Log in";
  $("blocks").replaceChildren(h("p", {}, said.error ?? "Log in to see this."));
  $("login").textContent = "Log in";
  await login();
}

/** Log in, and keep the key that goes with the cookie. */
export async function logIn(user, secret) {
  const bytes = new TextEncoder().encode(`${user}:${secret}`);
  const basic = `Basic ${btoa(String.fromCharCode(...bytes))}`;
  const answer = await ask("/login", {
    method: "POST",
    headers: { Authorization: user ? basic : `Bearer ${secret}` },
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ?? `The server answers ${answer.status}.`);
  kept.set("rideau-key", said.key);
  toast(`Logged in as ${said.user}.`);
  load(false);
}

async function login() {
  if (frame.user && kept.get("rideau-key")) {
    await act("POST", "/logout").catch(() => null);
    kept.set("rideau-key", "");
    frame = {};
    return load(false);
  }
  askLogin();
}

function theme() {
  const all = ["", "dark", "light"];
  const next = all[(all.indexOf(kept.get("rideau-theme")) + 1) % all.length];
  kept.set("rideau-theme", next);
  next ? (document.documentElement.dataset.theme = next) : delete document.documentElement.dataset.theme;
  named();
  window.dispatchEvent(new Event("rideau-theme"));
}

function named() {
  $("theme").textContent = `Theme: ${kept.get("rideau-theme") || "auto"}`;
  $("look").setAttribute("aria-pressed", String(!!kept.get("rideau-look")));
}

function keys(event) {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping)) {
    event.preventDefault();
    const field = document.querySelector("main input[type=search]");
    event.key === "/" && field ? field.focus() : openPalette();
  } else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && !isTyping && event.target.closest?.("tbody")) {
    const links = [...event.target.closest("tbody").querySelectorAll("tr")].map((row) => row.querySelector("a, button")).filter(Boolean);
    const at = links.findIndex((link) => link.closest("tr").contains(event.target));
    const next = links[at + (event.key === "j" || event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
}

async function begin() {
  $("theme").onclick = theme;
  $("look").onclick = () => {
    const isOn = !kept.get("rideau-look");
    kept.set("rideau-look", isOn ? "yes" : "");
    isOn ? (document.documentElement.dataset.look = "only") : delete document.documentElement.dataset.look;
    named();
  };
  $("login").onclick = login;
  $("search").onclick = openPalette;
  // The address after the hash is the page.
  $("skip").onclick = (event) => {
    event.preventDefault();
    $("main").focus();
  };
  named();
  addEventListener("keydown", keys);
  addEventListener("hashchange", () => {
    const before = route;
    route = read();
    load(before.path !== route.path);
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? (stop.abort(), clearTimeout(again)) : load(false)));
  const token = new URLSearchParams(location.search).get("token");
  if (token) {
    history.replaceState(null, "", `/${location.hash}`);
    await logIn("", token).catch((error) => toast(error.message));
  }
  load(false);
}

begin();
