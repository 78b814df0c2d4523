// Each kind of block as elements. A block that comes again is laid over the one that is there,
// so that focus, selection and scrolling stay.
import { chart, heat, spark } from "./charts.js";
import { change, to } from "./app.js";
import { confirmAct, editor, toast } from "./dialogs.js";

const SVG = "http://www.w3.org/2000/svg";
const SIGNS = { fine: ["●", "fine"], warn: ["▲", "needs a look"], bad: ["■", "bad"] };

/** An element with attributes and children. */
export function h(tag, attributes, ...children) {
  const one = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) one[name] = value;
    else one.setAttribute(name, value === true ? "" : value);
  }
  one.append(...children.flat().filter((child) => child != null && child !== ""));
  return one;
}

/** Lay the blocks of a page over those that are there. */
export function show(root, page) {
  if (root.dataset.path !== page.path) {
    root.dataset.path = page.path;
    root.replaceChildren();
  }
  let at = root.firstChild;
  for (const block of page.blocks) {
    const key = `${block.type} ${block.id ?? block.title ?? ""}`;
    let one = at;
    while (one && one.dataset.key !== key) one = one.nextSibling;
    if (!one) {
      one = build(block, page);
      one.dataset.key = key;
      root.insertBefore(one, at);
      continue;
    }
    while (at !== one) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    at = one.nextSibling;
    if (one.renew) one.renew(block, page);
    else {
      const now = build(block, page);
      now.dataset.key = key;
      morph(one, now);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

/** Make one element like another, and keep it. */
function morph(old, now) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  // What a person has opened stays open.
  const stays = (name) => name === "open" && old.nodeName === "DETAILS";
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !stays(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  old.onclick = now.onclick;
  if (old.matches?.("input")) return;
  const [before, after] = [[...old.childNodes], [...now.childNodes]];
  after.forEach((child, place) => {
    const there = before[place];
    if (!there) old.append(child);
    else if (there.nodeName !== child.nodeName) there.replaceWith(child);
    else morph(there, child);
  });
  before.slice(after.length).forEach((child) => child.remove());
}

const build = (block, page) => (blocks[block.type] ?? unknown)(block, page);
const unknown = (block) => h("p", {}, `This page cannot show ${block.type}: load it anew.`);
const section = (block, ...children) => h("section", { class: `block ${block.type}` }, block.title ? h("h2", {}, block.title) : "", ...children);

/** How a thing is: a shape and a word, so that colour is never alone. */
function sign(level, why) {
  const [shape, word] = SIGNS[level] ?? SIGNS.fine;
  return h("span", { class: `sign ${level}`, title: why || word }, h("span", { "aria-hidden": "true" }, shape), h("span", { class: "unseen" }, word));
}

/** How full something is, as a bar and in words. */
function fill(part, text) {
  const level = part >= 1 ? "full" : "";
  return h("span", { class: "fill" },
    h("svg:svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("svg:rect", { class: "all", width: 100, height: 10 }),
      h("svg:rect", { class: `part ${level}`, width: Math.max(part * 100, part > 0 ? 2 : 0), height: 10 })),
    h("span", {}, text));
}

const button = (action) => h("button", {
  type: "button",
  class: `act ${action.is_hard ? "hard" : ""}`,
  onclick: () => confirmAct(action),
}, `${action.label}…`);

const copy = (text) => h("button", {
  type: "button",
  class: "id",
  title: "Copy",
  onclick: () => navigator.clipboard?.writeText(text).then(() => toast(`Copied ${text}`)),
}, text);

function cell(value) {
  if (typeof value === "string") return value;
  return value.link ? h("a", { href: to(value.link) }, value.text) : copy(value.text);
}

function table(block, page) {
  const box = section(block, h("div", { class: "controls" }), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": block.title }), h("p", { class: "foot" }));
  box.renew = (now, of) => {
    box.querySelector("h2").firstChild.data = now.title;
    controls(box.querySelector(".controls"), now);
    morph(box.querySelector(".scroll"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": now.title }, rows(now, of)));
    morph(box.querySelector(".foot"), h("p", { class: "foot" }, ...foot(now)));
  };
  box.renew(block, page);
  return box;
}

/** The field to search with; it stays while one types. */
function controls(box, block) {
  if (!block.is_whole || box.firstChild) return;
  let timer = 0;
  const field = h("input", { type: "search", value: block.find, placeholder: `Search ${block.title.split(",")[0].toLowerCase()}`, "aria-label": `Search ${block.title}` });
  field.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ find: field.value, from: "" }), 250);
  };
  box.append(field);
}

function rows(block) {
  if (!block.rows.length) return h("p", {}, block.none || "There are none.");
  const hasSign = block.rows.some((row) => row.level !== "fine");
  const hasActs = block.rows.some((row) => row.actions.length);
  const head = (one, at) => {
    const [by, isDown] = [block.sort.replace(/^-/, ""), block.sort.startsWith("-")];
    const isBy = by === one.name;
    const canSort = block.is_whole && ["pools", "brokers", "regulators", "apps", "ranges", "locks"].includes(block.id);
    const label = canSort
      ? h("button", { type: "button", title: one.help, onclick: () => change({ sort: isBy ? (isDown ? "" : `-${by}`) : one.is_number ? `-${one.name}` : one.name, from: "" }) }, one.label, isBy ? (isDown ? " ↓" : " ↑") : "")
      : h("span", { title: one.help }, one.label);
    return h("th", { scope: "col", class: one.is_number ? "number" : null, "aria-sort": isBy ? (isDown ? "descending" : "ascending") : null }, at === 0 && hasSign ? h("span", { class: "unseen" }, "state and ") : "", label);
  };
  const heads = block.heads.map(head);
  if (block.has_fill) heads.splice(1, 0, h("th", { scope: "col" }, "full"));
  if (hasActs) heads.push(h("th", { scope: "col", class: "act" }, "actions"));
  const body = block.rows.map((row) => {
    const cells = row.cells.map((value, at) => h(at ? "td" : "th", { scope: at ? null : "row", class: block.heads[at].is_number ? "number" : null }, at || !hasSign ? "" : sign(row.level, row.why), cell(value)));
    if (block.has_fill) cells.splice(1, 0, h("td", {}, row.fill ? fill(row.fill.part, row.fill.text) : ""));
    if (hasActs) cells.push(h("td", { class: "act" }, ...row.actions.map(button)));
    return h("tr", { class: row.level }, ...cells);
  });
  return h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...body));
}

function foot(block) {
  const [first, last] = [block.from + 1, block.from + block.rows.length];
  const said = [];
  if (block.note) said.push(h("span", {}, block.note));
  if (block.is_whole && block.total > block.rows.length) {
    const step = (label, from) => h("button", { type: "button", disabled: from == null, onclick: () => change({ from: from ? String(from) : "" }) }, label);
    said.push(h("span", {}, `${first} to ${last} of ${block.total}`),
      step("Before", block.from > 0 ? Math.max(block.from - block.count, 0) : null),
      step("Next", last < block.total ? block.from + block.count : null));
  } else if (block.more && block.total > block.rows.length) {
    said.push(h("a", { href: to(block.more) }, `All ${block.total}`));
  } else if (block.rows.length > 20) {
    said.push(h("span", {}, `${block.total} in all`));
  }
  return said;
}

function alerts(block) {
  const thing = (row) => `${row.kind} ${row.name}`.trim();
  const all = block.rows.map((row) => h("li", { class: row.level },
    sign(row.level), " ",
    row.link ? h("a", { href: to(row.link) }, thing(row)) : thing(row),
    `: ${row.text}, ${row.since}. `,
    row.name ? h("a", { href: to(`explain/${encodeURIComponent(`${row.kind}:${row.name}`)}`), "aria-label": `Explain ${thing(row)}` }, "Explain") : ""));
  if (block.more) all.push(h("li", { class: "quiet" }, `${block.more} more need a look: their lists begin with them.`));
  return h("section", { class: "block alerts", "aria-label": "What needs a look" },
    all.length ? h("ul", {}, ...all) : h("p", { class: "fine" }, sign("fine"), " Nothing needs a look."));
}

const tiles = (block) => h("section", { class: "block tiles", "aria-label": "In numbers" }, h("dl", {}, ...block.tiles.map((tile) => h("div", { title: tile.help },
  h("dt", {}, tile.label), h("dd", {}, tile.text, tile.spark.length > 1 ? spark(tile.spark) : "")))));

const text = (block) => section(block, ...block.text.split("\n").map((line) => {
  const code = /^(\s+)?(rideau |redis-cli |CONFIG SET )/.test(line);
  return h(code ? "pre" : "p", {}, line || "\u00a0");
}));

const facts = (block) => h("details", { class: "block facts" }, h("summary", {}, block.title),
  h("dl", {}, ...block.rows.map((row) => h("div", {}, h("dt", {}, row.label), h("dd", {}, row.text), h("dd", { class: "quiet" }, row.help)))));

const links = (block) => h("nav", { class: "block links", "aria-label": "More" }, ...block.links.map((one) => h("a", { href: to(one.link) }, one.label)));

const choices = (block) => h("nav", { class: "block links", "aria-label": "Groups" },
  h("a", { href: to(block.page), "aria-current": block.only ? null : "true" }, "All"),
  ...block.groups.map((group) => h("a", { href: to(block.page, { only: group.word }), "aria-current": group.word === block.only ? "true" : null }, `${group.word} (${group.count})`)));

function bars(block) {
  const most = Math.max(1, ...block.rows.map((row) => row.count));
  return section(block, h("ul", { class: "rows" }, ...block.rows.map((row) => h("li", {},
    h("span", { class: "label" }, row.link ? h("a", { href: to(row.link) }, row.label) : row.label),
    h("svg:svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, h("svg:rect", { width: (100 * row.count) / most, height: 10 })),
    h("b", {}, row.text)))));
}

const commands = (block) => section(block, ...block.lines.map((line) => h("p", { class: "command" }, copy(line))));

function log(block) {
  const box = section(block, h("pre", { class: "log", tabindex: "0", role: "region", "aria-label": block.title }));
  const pre = box.querySelector("pre");
  box.renew = (now) => {
    const text = now.lines.map((line) => `${new Date(line.at_ms).toLocaleTimeString([], { hourCycle: "h23" })} ${line.stream} ${line.process}  ${line.text}`).join("\n") || "Nothing was written yet.";
    if (pre.textContent === text) return;
    const isEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
    pre.textContent = text;
    if (isEnd) pre.scrollTop = pre.scrollHeight;
  };
  box.renew(block);
  return box;
}

function map(block) {
  const wide = Math.ceil(Math.sqrt(block.cells.length));
  const high = Math.ceil(block.cells.length / wide);
  const cells = block.cells.map((one, at) => h("svg:g", { transform: `translate(${(at % wide) * 10} ${Math.floor(at / wide) * 10})` },
    h("svg:rect", { class: `u${Math.ceil(one.used * 4)}`, width: 9, height: 9 }, h("svg:title", {}, one.text)),
    one.is_apart ? h("svg:path", { class: "apart", d: "M0 9 9 0" }) : ""));
  return section(block, h("svg:svg", { class: "cells", viewBox: `0 0 ${wide * 10} ${high * 10}`, role: "img", "aria-label": block.text }, ...cells), h("p", { class: "quiet" }, block.text));
}

function lookup(block) {
  const field = h("input", { type: "search", name: "find", value: block.find, placeholder: block.hint, "aria-label": block.title });
  const box = h("section", { class: "block lookup" }, h("h2", {}, block.title),
    h("form", { onsubmit: (event) => { event.preventDefault(); change({ find: field.value.trim() }); } }, field, h("button", {}, "Look up")),
    h("div", {}));
  box.renew = (now) => morph(box.lastChild, h("div", {}, ...now.text.split("\n").filter(Boolean).map((line) => h("p", {}, line))));
  box.renew(block);
  return box;
}

const actions = (block) => h("section", { class: "block actions act", "aria-label": "Actions" }, ...block.actions.map(button));

const blocks = { alerts, tiles, text, facts, links, choices, bars, commands, log, map, lookup, actions, table, chart, heat, editor };
