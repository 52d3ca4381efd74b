// A table file whose columns have other names: the user says which column is what, and it is read accordingly.

import { h } from "../dom";
import { take } from "./arrivals";
import { button, field, select } from "./controls";

/** The columns that are needed: their name in a file of RecSmith, a description, and common other names. */
const WANTED: [string, string, RegExp][] = [
  ["embedding_dim", "Columns (dimension)", /dim|width/i],
  ["num_embeddings", "Rows", /row|num_?emb|num_?id|cardinal|vocab|hash|bucket|size/i],
  ["pooling_factor", "Ids per sample", /pool|lookup|ids|length|avg|mean|hot/i],
  ["name", "Name of the table", /name|table|feature|slot|field|^id$/i],
];
const SHOWN = ["name", "num_embeddings", "embedding_dim", "pooling_factor"];
const KEPT = [...SHOWN, "num_poolings", "pooling", "data_type", "collection", "optimizer"];
const LONGEST = 64 * 2 ** 20; // bytes of the largest file that is parsed here

/** Rows of cells, the header first. */
export type Rows = string[][];

/** The rows of a file that separates cells by one character and has a column name unknown to RecSmith; otherwise null. */
export async function ownColumns(file: File): Promise<Rows | null> {
  if (file.size > LONGEST) return null;
  const text = (await file.text()).replace(/^\uFEFF/, "").trim();
  const lines = text.split(/\r\n|\n|\r/).filter((line) => line.trim());
  const sign = ["\t", ";", ","].find((each) => lines[0]?.includes(each));
  if (!sign || (sign === "," && lines[0]!.split(sign).every((word) => KEPT.includes(word))) || text.includes('"') || lines.length < 2 || /^[[{]/.test(text)) return null;
  const rows = lines.map((line) => line.split(sign).map((word) => word.trim()));
  const head = rows[0]!;
  const isEven = rows.every((row) => row.length === head.length) && new Set(head).size === head.length;
  return isEven && head.length >= 3 && (sign === "," || rows.every((row) => !row.some((word) => word.includes(",")))) ? rows : null;
}

/** Which columns hold a table's name, rows, columns and ids, guessed by their names. */
function guessed(head: string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key] of WANTED) if (head.includes(key)) found.set(key, key);
  for (const [key, , words] of WANTED) {
    const taken = [...found.values()];
    const column = found.get(key) ?? head.find((each) => !taken.includes(each) && words.test(each));
    if (column) found.set(key, column);
  }
  return found;
}

/** Selects for the meaning of each column, and a button that reads the file accordingly. */
export function columnForm(name: string, rows: Rows): HTMLElement {
  const head = rows[0]!;
  const guess = guessed(head);
  const trouble = h("p", { class: "error", role: "alert" });
  const asked = SHOWN.map((key) => {
    const words = WANTED.find(([each]) => each === key)![1];
    return { key, words, control: select([["", "choose…"], ...head.map((each): [string, string] => [each, each])], guess.get(key) ?? "") };
  });
  const read = (): void => {
    const chosen = asked.map(({ control }) => control.value);
    const missing = asked.find(({ control }) => !control.value);
    if (missing) return void (trouble.textContent = `Choose the column of: ${missing.words}.`);
    if (new Set(chosen).size < chosen.length) return void (trouble.textContent = "Two of these are the same column; choose another for one.");
    const more = head.filter((each) => KEPT.includes(each) && !SHOWN.includes(each) && !chosen.includes(each));
    const at = [...chosen, ...more].map((each) => head.indexOf(each));
    const lines = [[...SHOWN, ...more], ...rows.slice(1).map((row) => at.map((i) => row[i]!))];
    const box = form.getBoundingClientRect();
    void take([new File([lines.map((line) => line.join(",")).join("\n")], name)], box.left, box.top);
  };
  const form = h("div", { class: "arrival" },
    h("p", null, h("strong", null, name), " names its columns in its own way. Which is which?"),
    h("div", { class: "row" }, asked.map(({ words, control }) => field(words, control))),
    h("div", { class: "buttons" }, button("Read the file", read, "primary", { id: "read-columns" })), trouble);
  return form;
}
