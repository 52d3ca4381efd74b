// Which changes of a plan's job pay; requested by a button, because it takes the server some seconds.

import { adviceList } from "../../advice";
import { h, replace } from "../../dom";
import { api } from "../api";
import { button, say } from "../controls";

export function whatPays(id: string): HTMLElement {
  const found = h("div", { "aria-live": "polite", tabindex: -1 });
  const ask = button("See what pays", () => void answer(), "primary", { id: "ask-advice" });
  const answer = async (): Promise<void> => {
    ask.disabled = true;
    replace(found, h("p", { class: "note" }, "Every change is priced with this plan; that takes some seconds, or half a minute."));
    try {
      replace(found, adviceList(await api.advice(id)));
      say("The list of changes is here.");
      ask.hidden = true;
      found.focus({ preventScroll: true }); // its button was removed
    } catch (error) {
      replace(found, h("p", { class: "error", role: "alert" }, (error as Error).message));
    }
    ask.disabled = false;
  };
  return h("div", null,
    h("p", { class: "note" }, "Other data types, messages, optimizers, batches and devices, each priced with this plan. Your moves by hand are not counted."),
    h("div", { class: "buttons" }, ask), found);
}
