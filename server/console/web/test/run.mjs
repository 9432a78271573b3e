// Drives the real server with a real browser: `node test/run.mjs [name ..]`. Pictures of the pages go to target/console.
//
// MILLRACE_BIN: the binary, target/debug/millrace if it is not said.  MILLRACE_CHROMIUM: the browser.  MILLRACE_DIST: what was built into
// ../dist is shown, and not what the binary has: nothing but the page was changed.
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Server } from "./server.mjs";
import { OVERVIEW } from "./overview.mjs";
import { SQL } from "./sql.mjs";
import { TESTS } from "./tests.mjs";
import { WHOLE } from "./whole.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../../../..");
const binary = process.env.MILLRACE_BIN ?? join(root, "target/debug/millrace");
const browsers = [process.env.MILLRACE_CHROMIUM, "/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome"];
const executablePath = browsers.find((path) => path && existsSync(path));
if (!executablePath) {
  console.log("skipped: the console in a browser (Debian's package chromium-headless-shell is needed)");
  process.exit(0);
}
const pictures = join(root, "target/console");
await mkdir(pictures, { recursive: true });
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What a test works with. */
class Visit {
  constructor(page, server) {
    Object.assign(this, { page, server, faults: [] });
    const { origin } = new URL(server.url);
    // Pages that are away say so by failed requests: a test that stops the server expects them.
    page.on("console", (message) => {
      if (message.type() === "error" && !(this.expectsFailures && /Failed to load resource|ERR_/.test(message.text()))) {
        this.faults.push(`console: ${message.text()}`);
      }
    });
    page.on("pageerror", (error) => this.faults.push(`exception: ${error.message}`));
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && url.protocol !== "blob:") this.faults.push(`a request elsewhere: ${request.url()}`);
    });
  }

  async open(where = "") {
    await this.page.goto(`${this.server.url}#/${where}`);
  }

  async go(where) {
    await this.page.evaluate((hash) => (location.hash = hash), `#/${where}`);
  }

  /** A picture, and no serious finding of axe, at both widths and in both themes. */
  async look(name, { dark = true } = {}) {
    await this.page.evaluate(axe);
    const before = this.page.viewportSize();
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      await this.page.setViewportSize({ width, height });
      for (const scheme of dark ? ["light", "dark"] : ["light"]) {
        await this.page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
        await this.page.waitForFunction((scheme) => document.documentElement.dataset.theme === scheme, scheme);
        await this.page.waitForTimeout(300);
        await this.page.screenshot({ path: join(pictures, `${name}-${width}-${scheme}.png`) });
        const found = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        for (const { id, impact, nodes } of found.violations) {
          if (impact !== "serious" && impact !== "critical") continue;
          this.faults.push(`axe, ${name} ${width} ${scheme}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} (${node.failureSummary})`).join("; ")}`);
        }
        const wide = await this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (wide > 0) this.faults.push(`${name} is ${wide} pixels too wide at ${width}`);
      }
    }
    await this.page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await this.page.setViewportSize(before);
  }

  /** Replaces the text of the editor. */
  async write(text) {
    const editor = this.page.locator(".cm-content").first();
    await editor.click();
    await this.page.keyboard.press("Control+a");
    await this.page.keyboard.press("Delete");
    await this.page.keyboard.insertText(text);
  }

  /** Numbers on the page that say nowhere what they mean: their texts. */
  async untold() {
    return this.page.evaluate(() => {
      const found = new Set();
      const walker = document.createTreeWalker(document.getElementById("main"), NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const text = node.textContent.trim();
        const element = node.parentElement;
        if (!/\d/.test(text) || (!element.offsetParent && element.tagName !== "text")) continue;
        if (element.closest("button:not(.node), .cm-editor, pre, code, .grid-row, .sr, .chart-reading, a, option, .verdict, .why, .troubles, .profiles")) continue;
        const cell = element.closest("td");
        const told = element.closest("[data-tip]") ?? cell?.closest("table").querySelectorAll("th")[cell.cellIndex]?.closest("[data-tip]");
        if (!told) found.add(`${element.tagName}: ${text.slice(0, 60)}`);
        else if (told.tabIndex < 0 && !told.closest("button, a, label, [tabindex='0'], svg")) found.add(`not by keyboard: ${text.slice(0, 60)}`);
      }
      return [...found];
    });
  }

  async run(text) {
    await this.write(text);
    await this.page.keyboard.press("Control+Enter");
  }
}

const wanted = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
let failed = 0;
for (const test of [...TESTS, ...OVERVIEW, ...SQL, ...WHOLE]) {
  if (wanted.length > 0 && !wanted.includes(test.name)) continue;
  const begun = performance.now();
  const server = await Server.start(binary, test.environment);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  if (process.env.MILLRACE_DIST) {
    for (const file of ["app.js", "app.css"]) await context.route(`**/console/${file}`, (route) => route.fulfill({ path: join(root, "server/console/dist", file) }));
  }
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const visit = new Visit(page, server);
  try {
    await test.run(visit);
  } catch (error) {
    visit.faults.push(error.stack ?? String(error));
    await page.screenshot({ path: join(pictures, `failed-${test.name}.png`) }).catch(() => {});
  }
  await context.close();
  await server.remove();
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  console.log(`${visit.faults.length === 0 ? "ok    " : "FAILED"} ${test.name} (${seconds} s)`);
  for (const fault of new Set(visit.faults)) console.log(`       ${fault.replaceAll("\n", "\n       ")}`);
  failed += visit.faults.length > 0 ? 1 : 0;
}
await browser.close();
console.log(failed === 0 ? `all of the console's tests passed; pictures are in ${pictures}` : `${failed} of the console's tests failed`);
process.exit(failed === 0 ? 0 : 1);
