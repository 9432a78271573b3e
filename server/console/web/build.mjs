// Builds the page into ../dist, the same bytes each time: `npm run build`. With --watch it goes on building.
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "../dist");

const options = {
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: dist,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
  logLevel: "info",
};

/// The packages whose files are in the bundle, with their licences in full.
async function thirdParty(metafile) {
  const names = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match) names.add(match[1]);
  }
  const parts = ["The console contains these programs of others.\n"];
  for (const name of [...names].sort()) {
    const folder = join(here, "node_modules", name);
    const about = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((file) => /^licen[cs]e/i.test(file));
    if (!file) throw new Error(`${name} has no licence`);
    const text = (await readFile(join(folder, file), "utf8")).replaceAll("\r\n", "\n").trim();
    parts.push(`${"=".repeat(80)}\n${name} ${about.version} (${about.license})\n\n${text}\n`);
  }
  return parts.join("\n");
}

await mkdir(dist, { recursive: true });
const copy = async () => {
  await copyFile(join(here, "src/index.html"), join(dist, "index.html"));
  await copyFile(join(here, "src/icon.svg"), join(dist, "icon.svg"));
};
if (process.argv.includes("--watch")) {
  await copy();
  const context = await esbuild.context(options);
  await context.watch();
} else {
  await copy();
  const result = await esbuild.build(options);
  await writeFile(join(dist, "third-party.txt"), await thirdParty(result.metafile));
  for (const file of (await readdir(dist)).sort()) {
    const bytes = await readFile(join(dist, file));
    const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
    console.log(`${file.padEnd(16)} ${String(bytes.length).padStart(8)} bytes  ${hash}`);
  }
}
