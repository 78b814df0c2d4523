// The dashboard in a browser: `node dashboard.mjs JOB`, where JOB is JSON that says where
// everything is. Each case is a line: `ok NAME` or `fault NAME: why`.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import net from "node:net";

const job = JSON.parse(process.argv[2]);
const { chromium } = createRequire(`${job.playwright}/`)("playwright-core");
const axe = readFileSync(`${job.axe}/node_modules/axe-core/axe.min.js`, "utf8");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** The words of an answer, if it is complete. */
function answer(text) {
  const lines = text.split("\r\n");
  let at = 0;
  const one = () => {
    const line = lines[at++];
    if (line === undefined || at >= lines.length) return null;
    if (line[0] !== "$") return line.slice(1);
    if (line === "$-1") return "";
    return ++at < lines.length ? lines[at - 1] : null;
  };
  if (text[0] !== "*") {
    const word = one();
    return word === null ? null : [word];
  }
  const words = [];
  for (let left = Number(lines[at++].slice(1)); left > 0; left--) {
    const word = one();
    if (word === null) return null;
    words.push(word);
  }
  return words;
}

/** A client of the Redis protocol, one command at a time. */
class Client {
  constructor(name) {
    this.socket = net.connect(job.redis, "127.0.0.1");
    this.socket.on("error", () => (this.isOver = true));
    this.socket.on("close", () => { this.isOver = true; this.heard?.([]); });
    this.text = "";
    this.socket.on("data", (data) => {
      this.text += data;
      const words = answer(this.text);
      if (!words || !this.heard) return;
      this.text = "";
      const heard = this.heard;
      this.heard = null;
      heard(words);
    });
    this.ready = this.say(`CLIENT SETNAME ${name}`);
  }

  say(line) {
    return new Promise((heard) => {
      this.heard = heard;
      this.isOver ? heard([]) : this.socket.write(`${line}\r\n`);
    });
  }

  /** Ask for something, hold it for a while, and end it. */
  async round(ask, hold, end) {
    const [word, ticket] = await this.say(ask);
    if (word !== "go") return sleep(30);
    await sleep(hold());
    return this.say(`${end} ${ticket}`);
  }
}

const clients = [];
let isOver = false;

/** Clients that come for as long as the test runs: more of them than can be served. */
async function traffic() {
  const any = (low, high) => () => low + Math.random() * (high - low);
  const start = (name, ask, hold, end, pause) => {
    const client = new Client(name);
    clients.push(client);
    (async () => {
      await client.ready;
      while (!isOver && !client.isOver) {
        await client.round(ask, hold, end);
        await sleep(pause());
      }
    })();
  };
  for (let at = 0; at < 14; at++) start(`web-${at}`, 'TAKE pg WAIT 400 NOTE "GET /cart"', any(20, 60), "RELEASE", any(5, 60));
  for (let at = 0; at < 16; at++) start(`checkout-${at}`, "ASK checkout WAIT 800 VALUE basket", any(1, 2), "DONE", any(20, 80));
  for (let at = 0; at < 3; at++) start(`worker-${at}`, "OFFER checkout WAIT 2000", any(20, 60), "DONE", any(1, 3));
  for (let at = 0; at < 6; at++) start(`tenant-${at}`, `LOCK tenant/${at % 3} NOTE import`, any(60, 160), "RELEASE", any(20, 90));
  start("cad-04", 'TAKE licences NOTE "bridge.dwg"', any(1e6, 1e6), "RELEASE", any(1, 2));
  for (let at = 0; at < 90; at++) {
    const body = JSON.stringify({ ttl_ms: 60000 * (5 + (at % 50)), keys: [`mac:${at}`] });
    await fetch(`${job.url}/v1/reserve/office`, { method: "POST", body });
  }
  (async () => {
    for (let at = 0; !isOver; at++) {
      await Promise.all([0, 1, 2].map(() => fetch(`${job.front}/sleep/${20 + (at % 5) * 10}`).then((answer) => answer.text()).catch(() => null)));
      if (at % 10 === 0) await fetch(`${job.front}/say/line-${at}`).catch(() => null);
    }
  })();
}

const faults = [];
let foreign = [];
let browser;

async function open(options = {}, path = "") {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "light", reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(20000);
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && faults.push(`${page.url()}: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`${page.url()}: ${error.message}`));
  page.on("request", (request) => request.url().startsWith(job.url) || request.url().startsWith("data:") || foreign.push(request.url()));
  if (job.assets) {
    // The files from disk: while one writes them.
    await page.route(`${job.url}/assets/**`, (route) => route.fulfill({ path: `${job.assets}/${new URL(route.request().url()).pathname.slice(8)}` }));
  }
  await page.goto(`${job.url}/${path}`);
  return page;
}

const PAGES = [
  ["overview", ".tiles dd"], ["pools", "tbody a"], ["pools/pg", ".facts"], ["brokers", "tbody a"], ["brokers/checkout", ".heat canvas"],
  ["regulators/size", ".chart"], ["locks", "tbody a"], ["locks/tenant%2F0", ".text"], ["apps", "tbody a"], ["apps/shop", ".log"],
  ["ranges", "tbody a"], ["ranges/office", ".map"], ["holders", "tbody tr"], ["clients", "tbody tr"], ["sessions", "table, .scroll p"],
  ["events", "tbody tr"], ["refusals", "tbody tr"], ["explain/pool%3Apg", ".text"], ["config", ".editor"], ["cluster", ".text"],
];

/** Pages of the same blocks as others: axe needs to see only one of them. */
const ALIKE = ["regulators/size", "clients", "refusals", "ranges", "brokers", "apps"];

const visit = async (page, path, shown, query = "") => {
  await page.evaluate((hash) => (location.hash = hash), `#/${path}${query}`);
  await page.waitForFunction((wanted) => document.querySelector("#blocks").dataset.path === wanted, decodeURIComponent(path));
  await page.waitForSelector(`#blocks ${shown}`, { state: "attached" });
};

const text = (page, selector) => page.locator(selector).first().textContent();

/** Until something is so in the page. */
const until = (page, what, argument) => page.waitForFunction(what, argument, { polling: 100 });

const cases = {
  async "every page loads and says nothing in the console"(page) {
    faults.length = 0;
    for (const [path, shown] of PAGES) {
      await visit(page, path, shown);
      const titles = [await page.title(), await text(page, "#title")];
      if (!titles[0].startsWith(titles[1])) throw new Error(`${path}: ${titles}`);
      const current = await page.locator("#nav [aria-current]").count();
      if (current !== 1) throw new Error(`${path}: ${current} tabs are current`);
    }
    if (faults.length) throw new Error(faults.join("; "));
  },

  async "a deep link works and so does going back"() {
    const page = await open({}, "#/pools/pg");
    await until(page, () => document.querySelector("#title").textContent === "Pool pg");
    await page.locator("#nav a", { hasText: "Brokers" }).click();
    await until(page, () => document.querySelector("#title").textContent === "Brokers");
    await page.goBack();
    await until(page, () => document.querySelector("#title").textContent === "Pool pg");
    const times = await page.evaluate(() => performance.getEntriesByType("navigation").length);
    if (times !== 1) throw new Error("the page was loaded anew");
    await page.context().close();
  },

  async "the first chart is drawn soon and has its history"() {
    const page = await open();
    await page.waitForSelector(".plot canvas");
    const legend = await text(page, ".legend li b");
    if (!/\d/.test(legend)) throw new Error(`the legend says ${legend}`);
    await page.getByRole("button", { name: "6 h" }).click();
    await until(page, () => document.querySelector("#spans [aria-pressed=true]").textContent === "6 h");
    await page.context().close();
  },

  async "live values move"(page) {
    await visit(page, "overview", ".tiles dd");
    const before = await text(page, ".tiles");
    await until(page, (old) => document.querySelector(".tiles").textContent !== old, before);
    const legend = await text(page, ".legend");
    await until(page, (old) => document.querySelector(".legend").textContent !== old, legend);
  },

  async "the overview says what is worst first"(page) {
    await visit(page, "overview", ".alerts li");
    await until(page, () => document.querySelector(".alerts li")?.className === "bad");
    const worst = await text(page, ".alerts li a");
    if (!["pool pg", "broker checkout"].includes(worst)) throw new Error(`${worst} is worst`);
    await page.locator(".alerts li.bad a", { hasText: "Explain" }).first().click();
    await until(page, () => document.querySelector("#blocks").dataset.path.startsWith("explain"));
    const first = await text(page, "#title");
    if (!["pool pg", "broker checkout"].includes(first)) throw new Error(first);
  },

  async "an action says its impact changes the server and is an event"(page) {
    await visit(page, "pools/pg", ".actions");
    await page.locator("#blocks > .actions button", { hasText: "Pause" }).click();
    const impact = await text(page, "dialog form p");
    if (!impact.includes("lends nothing until it is resumed")) throw new Error(impact);
    await page.getByRole("button", { name: "Cancel" }).click();
    const state = () => fetch(`${job.url}/api/v1/pools/pg`).then((answer) => answer.json());
    if ((await state()).is_paused) throw new Error("it is paused though one said no");
    await page.locator("#blocks > .actions button", { hasText: "Pause" }).click();
    await page.locator("dialog button", { hasText: "Pause" }).click();
    await until(page, () => document.querySelector("#toast").textContent.includes("done"));
    if (!(await state()).is_paused) throw new Error("it is not paused");
    await visit(page, "events", "tbody tr");
    await until(page, () => document.querySelector("tbody").textContent.includes("pg was paused"));
    const by = await page.locator("tbody tr", { hasText: "pg was paused" }).first().textContent();
    if (!by.includes("operator")) throw new Error(by);
    await visit(page, "pools/pg", ".actions");
    await page.locator("#blocks > .actions button", { hasText: "Resume" }).click();
    await page.locator("dialog button", { hasText: "Resume" }).click();
    await until(page, () => document.querySelector("#toast").textContent.includes("Resume"));
    if ((await state()).is_paused) throw new Error("it is still paused");
  },

  async "a lease is revoked"(page) {
    await visit(page, "holders", "tbody tr");
    await page.locator("main input[type=search]").fill("bridge");
    await until(page, () => document.querySelectorAll("tbody tr").length === 1);
    await page.locator("tbody button", { hasText: "Revoke" }).click();
    const impact = await text(page, "dialog form p");
    if (!impact.includes("cad-04 loses")) throw new Error(impact);
    await page.locator("dialog button", { hasText: "Revoke" }).click();
    await visit(page, "events", "tbody tr");
    await until(page, () => document.querySelector("tbody").textContent.includes("was revoked from cad-04"));
  },

  async "the config is planned and applied and goes back"(page) {
    await visit(page, "config", ".editor textarea");
    await page.locator("textarea").fill("pool.pg.max = zero");
    await page.locator(".editor button", { hasText: "Plan" }).click();
    await until(page, () => document.querySelector(".said.fault")?.textContent.length > 5);
    await page.locator("textarea").fill("pool.licences.leak_after = \"7m\"");
    await page.locator(".editor button", { hasText: "Plan" }).click();
    await until(page, () => document.querySelector(".said")?.textContent.includes("leak_after"));
    await page.locator(".editor button", { hasText: "Apply" }).click();
    await page.locator("dialog button.main", { hasText: "Apply" }).click();
    await until(page, () => document.querySelector(".said").textContent.startsWith("Applied"));
    await page.locator("tbody button", { hasText: "Go back" }).first().click();
    await page.locator("dialog button", { hasText: "Go back" }).click();
    await until(page, () => document.querySelector("#toast").textContent.includes("done"));
  },

  async "a list is searched sorted and left by link"(page) {
    await visit(page, "pools", "tbody a");
    await page.locator("main input[type=search]").fill("lic");
    await until(page, () => document.querySelectorAll("tbody")[0].querySelectorAll("tr").length === 1);
    await page.locator("main input[type=search]").fill("");
    await until(page, () => document.querySelectorAll("tbody")[0].querySelectorAll("tr").length > 1);
    await page.locator("thead button", { hasText: "max" }).first().click();
    await until(page, () => document.querySelector("th[aria-sort=descending]")?.textContent.includes("max"));
    const first = await text(page, "tbody a");
    if (first !== "pg") throw new Error(`${first} has most`);
  },

  async "a hidden tab stops the updates and a shown one goes on"(page) {
    await visit(page, "overview", ".tiles dd");
    const hide = (isHidden) => page.evaluate((is) => {
      Object.defineProperty(document, "hidden", { value: is, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
    const watchers = async () => {
      const answer = await fetch(`${job.url}/api/v1/limits`).then((one) => one.json());
      return answer.limits.find((limit) => limit.name === "http_watchers").now;
    };
    const atFirst = await watchers();
    await hide(true);
    for (let at = 0; (await watchers()) !== atFirst - 1; at++) {
      if (at > 100) throw new Error(`${await watchers()} of ${atFirst} still watch`);
      await sleep(50);
    }
    const before = await text(page, ".tiles");
    await sleep(1500);
    if ((await text(page, ".tiles")) !== before) throw new Error("it moves while it is hidden");
    await hide(false);
    await until(page, (old) => document.querySelector(".tiles").textContent !== old, before);
  },

  async "the main tasks are done by keyboard alone"() {
    const page = await open({}, `?token=${job.token}`);
    await page.waitForSelector("#blocks > .tiles");
    await until(page, () => document.querySelector("#login").textContent.includes("Log out"));
    const press = (...keys) => keys.reduce((last, key) => last.then(() => page.keyboard.press(key)), Promise.resolve());
    const focus = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.outerHTML);
    await page.evaluate(() => document.activeElement.blur());
    // The skip link is first, and leads past everything.
    await press("Tab");
    if (!(await focus()).startsWith("Skip")) throw new Error(`first is ${await focus()}`);
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    if (outline === "none") throw new Error("the focus is not seen");
    await press("Enter");
    if ((await page.evaluate(() => document.activeElement.id)) !== "main") throw new Error("the link leads nowhere");
    if (await page.evaluate(() => location.hash.includes("main"))) throw new Error("the link is a page");
    // The search finds a page and a thing.
    await press("/");
    await page.keyboard.type("pg");
    await page.locator(".found a", { hasText: "Pools: pg" }).waitFor();
    await press("ArrowDown");
    for (let at = 0; !(await focus()).startsWith("Pools: pg"); at++) {
      if (at > 20) throw new Error("the name is not reached");
      await press("ArrowDown");
    }
    await press("Enter");
    await until(page, () => document.querySelector("#title").textContent === "Pool pg");
    // From there to the action, and no further than its question.
    for (let at = 0; !(await focus()).startsWith("Resize"); at++) {
      if (at > 60) throw new Error("the action is not reached");
      await press("Tab");
    }
    await press("Enter");
    await page.waitForSelector("dialog[open]");
    await press("Escape");
    await page.waitForSelector("dialog[open]", { state: "detached" });
    if (!(await focus()).startsWith("Resize")) throw new Error("the focus was lost");
    // Down a list and into a row.
    await visit(page, "pools", "tbody a");
    await page.locator("tbody a").first().focus();
    const first = await focus();
    await press("j");
    if ((await focus()) === first) throw new Error("j does not go down");
    const name = await focus();
    await press("Enter");
    await until(page, (wanted) => document.querySelector("#title").textContent === `Pool ${wanted}`, name);
    await page.context().close();
  },

  async "without a login one looks and changes nothing"() {
    const page = await open({}, "#/pools/pg");
    await page.waitForSelector("#hint");
    if (await page.locator("#blocks > .actions").count()) throw new Error("there are actions");
    await page.locator("#login").click();
    await page.locator("dialog input[type=password]").fill("wrong");
    await page.locator("dialog button.main").click();
    await until(page, () => document.querySelector("dialog .fault").textContent.includes("token"));
    faults.length = 0;
    await page.locator("dialog input[type=password]").fill(job.token);
    await page.locator("dialog button.main").click();
    await page.waitForSelector("#blocks > .actions button");
    await page.locator("#look").click();
    if (await page.locator("#blocks > .actions").isVisible()) throw new Error("look only shows actions");
    await page.context().close();
  },

  async "axe finds nothing serious narrow and wide light and dark"() {
    const found = new Set();
    const page = await open({ bypassCSP: true }, `?token=${job.token}`);
    await page.waitForSelector("#blocks > .tiles");
    await page.addScriptTag({ content: axe });
    for (const [path, shown] of PAGES.filter(([path]) => job.pictures || !ALIKE.includes(path))) {
      await visit(page, path, shown, "?count=6");
      for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1440, "dark"], [1440, "light"]]) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) found.add(`${path} at ${width}: ${wide} px too wide`);
        // In another light only colours are others.
        const rules = colorScheme === "dark" ? { runOnly: ["color-contrast"] } : {};
        const all = await page.evaluate((of) => window.axe.run({ exclude: [[".plot"]] }, { resultTypes: ["violations"], ...of }), rules);
        for (const one of all.violations) {
          // No finding is moderate, either.
          if (one.impact !== "minor") found.add(`${path} at ${width} ${colorScheme}: ${one.id} ${one.nodes[0].html}`);
        }
        if (job.pictures) {
          mkdirSync(job.pictures, { recursive: true });
          await page.screenshot({ path: `${job.pictures}/${path.replace(/\W+/g, "-")}-${width}-${colorScheme}.png`, fullPage: true });
        }
      }
    }
    await page.context().close();
    if (found.size) throw new Error([...found].join("\n"));
  },

  async "all files are light and none comes from elsewhere"() {
    const page = await open();
    await page.waitForSelector(".plot canvas");
    const files = await page.evaluate(() => performance.getEntriesByType("resource").filter((one) => one.name.includes("/assets/")).map((one) => one.name));
    if (files.length < 7) throw new Error(`only ${files}`);
    let all = 0;
    for (const file of [`${job.url}/`, ...new Set(files)]) {
      const answer = await fetch(file, { headers: { "Accept-Encoding": "gzip" } });
      if (answer.headers.get("content-encoding") !== "gzip") throw new Error(`${file} is not compressed`);
      all += Number(answer.headers.get("content-length"));
    }
    if (!(all > 10000 && all <= 80000)) throw new Error(`${all} bytes`);
    if (foreign.length) throw new Error(foreign.join(" "));
    await page.context().close();
  },

  async "the page comes back when the server does"(page) {
    faults.length = 0;
    await visit(page, "overview", ".tiles dd");
    await page.context().setOffline(true);
    await page.evaluate(() => document.querySelector("#nav a[href='#/pools']").click());
    await until(page, () => !document.querySelector("#banner").hidden);
    await page.context().setOffline(false);
    await until(page, () => document.querySelector("#banner").hidden && document.querySelector("#title").textContent === "Pools");
    faults.length = 0;
  },
};

async function main() {
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  try {
    if (job.only === "pictures") return await pictures();
    await traffic();
    const page = await open({}, `?token=${job.token}`);
    await page.waitForSelector("#blocks > .tiles");
    for (const [name, run] of Object.entries(cases)) {
      if (job.only && !name.includes(job.only)) continue;
      const began = Date.now();
      try {
        await run(page);
        console.log(`ok ${name}`);
      } catch (error) {
        console.log(`fault ${name}: ${String(error.message).replaceAll("\n", " | ")}`);
      }
      console.error(`${Date.now() - began} ms: ${name}`);
    }
  } finally {
    isOver = true;
    clients.forEach((client) => client.socket.destroy());
    await browser.close();
  }
}

/** Pictures for people: the overview of the demo in a rush, and an app of the test. */
async function pictures() {
  await traffic();
  const shot = async (page, name) => page.screenshot({ path: `${job.docs}/${name}.png` });
  const apps = await open({ viewport: { width: 1200, height: 780 } }, `?token=${job.token}#/apps/shop`);
  await apps.waitForSelector("#blocks .log");
  await sleep(8000);
  await shot(apps, "app");
  const demo = await browser.newPage({ viewport: { width: 1200, height: 780 }, colorScheme: "light" });
  await demo.goto(`${job.demo}/`);
  const isRush = () => [...document.querySelectorAll(".tiles dl > div")].some((tile) => tile.textContent.startsWith("refusals/s") && parseFloat(tile.querySelector("dd").textContent) > 100);
  await demo.waitForFunction(isRush, null, { timeout: 60000, polling: 200 });
  await sleep(5000);
  await shot(demo, "overview");
  console.log("ok pictures");
}

await main();
process.exit(0);
