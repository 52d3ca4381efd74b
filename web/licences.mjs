// Writes the licences of the packages that are built into the pages: node licences.mjs FOLDER.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const PACKAGES = { echarts: ["NOTICE", "LICENSE"], zrender: ["LICENSE"], tslib: ["LICENSE.txt"] };
const folder = process.argv[2];
const texts = Object.entries(PACKAGES).flatMap(([name, files]) => {
  const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  return [`${name} ${version}\n${"=".repeat(72)}`, ...files.map((file) => readFileSync(`node_modules/${name}/${file}`, "utf8").replaceAll("\r", "").trim())];
});
mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}/LICENSES.txt`, `The pages in this folder hold code of these packages.\n\n${texts.join("\n\n")}\n`);
