// Bundles src/ into the files that schedulers serve. The same sources and the same locked packages give the same bytes.
//
//   node build.mjs [DIRECTORY]     by default ../scheduler/http/static
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const TO = resolve(process.argv[2] ?? join(HERE, "../scheduler/http/static"));

mkdirSync(TO, { recursive: true });
const { metafile } = await build({
  entryPoints: { page: join(HERE, "src/main.js") },
  absWorkingDir: HERE,
  outdir: TO,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome111", "firefox113", "safari16.4"],
  legalComments: "none", // licences.txt has them, whole
  charset: "utf8",
  metafile: true,
  logLevel: "warning",
  plugins: [{ name: "no indentation", setup: (bundler) => bundler.onLoad({ filter: /\/page\/src\/.*\.js$/ }, withoutIndentation) }],
});
copyFileSync(join(HERE, "src/index.html"), join(TO, "index.html"));
copyFileSync(join(HERE, "src/icon.svg"), join(TO, "icon.svg"));
writeFileSync(join(TO, "licences.txt"), licences(Object.keys(metafile.inputs)));
// So that who has no Node can tell, too, whether what is served was built from these sources: tests/page/test_built.py.
writeFileSync(join(TO, "built-from.txt"), `${sources()}\n`);

/** Return the SHA-256 of everything that decides what is built: names and contents, in the order of names. */
function sources() {
  const names = ["build.mjs", "package.json", "package-lock.json"];
  for (const entry of readdirSync(join(HERE, "src"), { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) names.push(relative(HERE, join(entry.parentPath, entry.name)).split(sep).join("/"));
  }
  const hash = createHash("sha256");
  for (const name of names.sort()) {
    const content = readFileSync(join(HERE, name));
    hash.update(`${name} ${content.length}\n`).update(content);
  }
  return hash.digest("hex");
}

/** Indentation in templates is no text to htm, but esbuild has to keep it. */
function withoutIndentation({ path }) {
  return { contents: readFileSync(path, "utf8").replace(/\n[ \t]+/g, "\n"), loader: "js" };
}

/** The licences of all packages of which something is in the bundle. */
function licences(inputs) {
  const names = new Set();
  for (const input of inputs) {
    const found = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) names.add(found[1]);
  }
  // Dagre brings its graph library inside its own bundle.
  if (names.has("@dagrejs/dagre")) names.add("@dagrejs/graphlib");
  const parts = [...names].sort().map((name) => {
    const where = join(HERE, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(where, "package.json"), "utf8"));
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].map((each) => join(where, each)).find((each) => existsSync(each));
    if (!file) throw new Error(`${name} has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(file, "utf8").trim()}\n`;
  });
  return `The page is built with these packages.\n\n${parts.join(`\n${"-".repeat(80)}\n\n`)}`;
}
