// Lines over time (uPlot), heat maps and small lines. Each chart has the same axis of time, and
// the cursor of one is the cursor of all.
import { h } from "./blocks.js";

const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 4], [12, 4]];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clock = (ms, hasSeconds = true) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(hasSeconds ? { second: "2-digit" } : {}) });

/** A number in the unit of its series. */
function say(value, unit) {
  if (value == null) return "–";
  if (unit === "us") {
    if (value === 0) return "0";
    if (value < 1e3) return `${Math.round(value)} us`;
    if (value < 1e4) return `${(value / 1e3).toFixed(1)} ms`;
    if (value < 1e6) return `${Math.round(value / 1e3)} ms`;
    return value < 6e7 ? `${(value / 1e6).toFixed(1)} s` : `${Math.round(value / 6e7)} min`;
  }
  const number = Math.abs(value) >= 1e6 ? `${(value / 1e6).toFixed(1)} M`
    : Math.abs(value) >= 1e4 ? `${(value / 1e3).toFixed(0)} k`
    : Number.isInteger(value) ? String(value) : value.toFixed(value < 10 ? 1 : 0);
  return number + (unit === "/s" ? "/s" : "");
}

const swatch = (at) => h("svg:svg", { viewBox: "0 0 24 6", class: `swatch c${at % 6}`, "aria-hidden": "true" },
  h("svg:line", { x1: 0, x2: 24, y1: 3, y2: 3, "stroke-dasharray": DASHES[at % 6].join(" ") || null }));

export function chart(block, page) {
  const legend = h("ul", { class: "legend" });
  const plot = h("div", { class: "plot", "aria-hidden": "true" });
  const box = h("section", { class: "block chart" }, h("h2", {}, block.title), legend, plot);
  let [drawn, data, labels, width] = [null, null, "", 0];

  const values = (at) => [...legend.children].forEach((item, line) => {
    const all = data[line + 1];
    const text = say(all[at ?? all.length - 1], block.unit);
    if (item.lastChild.textContent !== text) item.lastChild.textContent = text;
  });

  const make = () => {
    drawn?.destroy();
    drawn = null;
    if (!width || !data) return;
    const [ink, grid] = [colour("--quiet"), colour("--line")];
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui, sans-serif" };
    drawn = new window.uPlot({
      width,
      height: 170,
      legend: { show: false },
      cursor: { sync: { key: "rideau" }, drag: { x: false, y: false }, points: { size: 5 } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, block.unit === "us" ? 1000 : 1) * 1.08] } },
      axes: [
        { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map((at) => clock(at * 1000, ticks[1] - ticks[0] < 60)) },
        { ...axis, size: 56, space: 32, values: (_, ticks) => ticks.map((value) => say(value, block.unit)) },
      ],
      series: [{}, ...block.series.map((one, at) => ({ label: one.label, stroke: colour(`--c${at % 6}`), width: 1.5, dash: DASHES[at % 6], points: { show: false }, spanGaps: false }))],
      hooks: { setCursor: [(of) => values(of.cursor.idx)] },
    }, data, plot);
  };

  box.renew = (now, of) => {
    const wanted = now.series.map((one) => one.label).join("\n");
    block = now;
    if (now.past) data = [now.past.at_ms.map((at) => at / 1000), ...now.past.values];
    else if (data && wanted === labels) push(now, of);
    else if (!data || wanted !== labels) data = [[of.frame.at_ms / 1000], ...now.now.map((value) => [value])];
    if (wanted !== labels || now.past) {
      labels = wanted;
      legend.replaceChildren(...now.series.map((one, at) => h("li", {}, swatch(at), h("span", {}, one.label), h("b", {}, "–"))));
      make();
    }
    drawn?.setData(data);
    values(drawn?.cursor.idx);
  };

  const push = (now, of) => {
    const at = of.frame.at_ms / 1000;
    const ats = data[0];
    if (ats.length && at <= ats[ats.length - 1]) return;
    // As long as it was when it came, but at least ten minutes.
    const reach = Math.max(600, ats[ats.length - 1] - ats[0]);
    const first = Math.max(0, ats.findIndex((one) => one >= at - reach));
    data = [[...ats.slice(first), at], ...data.slice(1).map((all, line) => [...all.slice(first), now.now[line]])];
  };

  new ResizeObserver(() => {
    const wide = Math.floor(plot.clientWidth);
    if (!wide || wide === width) return;
    width = wide;
    drawn ? drawn.setSize({ width, height: 170 }) : make();
  }).observe(plot);
  addEventListener("rideau-theme", () => box.isConnected && make());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => box.isConnected && make());
  box.renew(block, page);
  return box;
}

/** Waits over time: the darker a cell, the more waits were so long. */
export function heat(block, page) {
  const canvas = h("canvas", { role: "img", height: 190 });
  const said = h("p", { class: "quiet" });
  const box = h("section", { class: "block heat" }, h("h2", {}, block.title), canvas, said);
  const draw = () => {
    const [wide, high, left, foot] = [canvas.clientWidth, 190, 56, 18];
    if (!wide) return;
    const sharp = window.devicePixelRatio || 1;
    canvas.width = wide * sharp;
    canvas.height = high * sharp;
    const to = canvas.getContext("2d");
    to.scale(sharp, sharp);
    const rows = block.bounds.length + 1;
    const [across, up] = [(wide - left) / 120, (high - foot) / rows];
    const most = Math.max(1, ...block.columns.flat());
    const first = 120 - block.columns.length;
    const ink = colour("--heat");
    to.font = "11px system-ui, sans-serif";
    to.fillStyle = colour("--quiet");
    to.strokeStyle = colour("--line");
    to.textAlign = "right";
    to.textBaseline = "middle";
    block.bounds.forEach((bound, row) => {
      if (row % 3) return;
      const y = high - foot - (row + 1) * up;
      to.fillText(bound, left - 5, y);
      to.beginPath();
      to.moveTo(left, y + 0.5);
      to.lineTo(wide, y + 0.5);
      to.stroke();
    });
    to.textBaseline = "alphabetic";
    for (const part of [0, 0.5, 1]) {
      const ago = Math.round((1 - part) * 120 * block.step_s);
      to.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      to.fillText(clock(page.frame.at_ms - ago * 1000), left + part * (wide - left), high - 4);
    }
    to.fillStyle = ink;
    block.columns.forEach((column, at) => column.forEach((count, row) => {
      if (!count) return;
      // Few waits are seen beside many.
      to.globalAlpha = 0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most));
      to.fillRect(left + (first + at) * across, high - foot - (row + 1) * up, Math.ceil(across), Math.ceil(up));
    }));
    to.globalAlpha = 1;
  };
  box.renew = (now, of) => {
    [block, page] = [now, of];
    if (said.textContent !== now.text) {
      said.textContent = now.text;
      canvas.setAttribute("aria-label", `${now.title}. ${now.text}`);
    }
    draw();
  };
  new ResizeObserver(draw).observe(canvas);
  addEventListener("rideau-theme", () => box.isConnected && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => box.isConnected && draw());
  box.renew(block, page);
  return box;
}

/** A small line beside a number. */
export function spark(values) {
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${((at / (values.length - 1)) * 60).toFixed(1)},${(15 - ((value ?? 0) / most) * 14).toFixed(1)}`);
  return h("svg:svg", { class: "spark", viewBox: "0 0 60 16", preserveAspectRatio: "none", "aria-hidden": "true" }, h("svg:polyline", { points: points.join(" ") }));
}
