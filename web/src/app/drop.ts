// A place to drop a file, which is also a button that opens one.

import { h } from "../dom";

export function dropZone(words: string, take: (file: File) => void): HTMLElement {
  const input = h("input", { type: "file", class: "visually-hidden", tabindex: -1, "aria-hidden": "true",
    onchange: () => { if (input.files?.[0]) take(input.files[0]); input.value = ""; } });
  const zone = h("div", { class: "drop" },
    h("p", null, words), h("button", { type: "button", class: "button plain", onclick: () => input.click() }, "Choose a file"), input);
  zone.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    if (event.dataTransfer?.files[0]) take(event.dataTransfer.files[0]);
  });
  return zone;
}
