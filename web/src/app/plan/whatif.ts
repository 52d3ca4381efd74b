// The effect of another batch, memory, link or number of devices.

import type { Changes } from "../api";
import { h } from "../../dom";
import { button, field, settled } from "../controls";
import { bytes, counted, speed, whole } from "../format";
import { replan } from "./constraints";
import type { Edit } from "./edit";

const WAIT_MS = 120; // milliseconds after the last move of a slider before its price is requested

interface Knob { key: keyof Changes; label: string; now: number; steps: number[]; words: (value: number) => string }

export function whatIf(edit: Edit): HTMLElement {
  const { cluster, data } = edit.view;
  const times = (now: number, factors: number[]) => factors.map((factor) => now * factor);
  const around = [0.25, 0.5, 0.75, 1, 1.5, 2, 4];
  const knobs: Knob[] = [
    { key: "batch_size", label: "Samples per device", now: data.batch_size, steps: counts(times(data.batch_size, around)), words: whole },
    { key: "hbm_bytes", label: "Memory of a device", now: cluster.hbm_bytes, steps: times(cluster.hbm_bytes, [0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 2]).map(Math.round), words: bytes },
    { key: "intra_host_bandwidth", label: "Link within a host", now: cluster.intra_host_bandwidth, steps: times(cluster.intra_host_bandwidth, around), words: speed },
    ...(cluster.hosts > 1 ? [{ key: "inter_host_bandwidth" as const, label: "Link between hosts", now: cluster.inter_host_bandwidth, steps: times(cluster.inter_host_bandwidth, around), words: speed }] : []),
  ];
  const changes: Changes = { ...edit.changes };
  const sizes: Changes = {};
  let turned = false; // turned, but not requested yet
  const ask = settled((key: string) => { turned = false; void edit.change({ ...changes }, key); }, WAIT_MS);
  const trouble = h("p", { class: "error", role: "alert" });
  const again = () => void replan(edit, null, { ...changes, ...sizes }).catch((error: Error) => (trouble.textContent = error.message));
  const sliders = knobs.map((knob) => slider(knob, (value) => {
    if (value === knob.now) delete changes[knob.key];
    else (changes as Record<string, number>)[knob.key] = value;
    turned = true;
    ask(knob.key);
  }));
  const follow = () => knobs.forEach((knob, i) => {
    if (turned) return;
    const value = edit.changes[knob.key];
    if (value === undefined) delete changes[knob.key];
    else (changes as Record<string, unknown>)[knob.key] = value;
    sliders[i]!.show(Number(value ?? knob.now));
  });
  follow();
  edit.onChange(follow);
  return h("div", null,
    h("p", { class: "note" }, "The first sliders keep every shard where it is and price it at once."),
    sliders.map((each) => each.element),
    deviceKnob(edit, sizes),
    h("div", { class: "buttons" }, button("Plan again for this", again, "primary", { id: "replan-whatif" })), trouble);
}

/** Whole numbers >= 1 without duplicates: a batch of one sample has no quarter. */
const counts = (values: number[]): number[] => [...new Set(values.map((value) => Math.max(1, Math.round(value))))];

function slider(knob: Knob, onValue: (value: number) => void): { element: HTMLElement; show: (value: number) => void } {
  const home = knob.steps.indexOf(knob.now);
  const shown = h("output", null, knob.words(knob.now));
  const input = h("input", { type: "range", min: 0, max: knob.steps.length - 1, step: 1, value: home, "aria-valuetext": knob.words(knob.now) });
  const tell = () => {
    const value = knob.steps[Number(input.value)]!;
    shown.textContent = value === knob.now ? knob.words(value) : `${knob.words(value)} (was ${knob.words(knob.now)})`;
    input.setAttribute("aria-valuetext", knob.words(value));
    return value;
  };
  input.addEventListener("input", () => onValue(tell()));
  const element = field(knob.label, input);
  element.classList.add("slider");
  element.querySelector("label")!.append(" ", shown);
  const show = (value: number): void => {
    const at = knob.steps.indexOf(value);
    if (at < 0 || input.value === String(at)) return;
    input.value = String(at);
    tell();
  };
  return { element, show };
}

/** Devices in whole hosts, as `recsmith sweep` takes them: one host up to its number of devices, then several. */
function deviceKnob(edit: Edit, sizes: Changes): HTMLElement {
  const { hosts, local_world_size: local } = edit.view.cluster;
  const holds = hosts > 1 ? local : Math.max(local, edit.view.devices_per_host ?? local);
  const now = hosts * local;
  const steps = [...new Set([1, 2, 4, 8, 16, 32, 64, 128, 256, now])].filter((each) => each <= holds || each % holds === 0).sort((a, b) => a - b);
  const shape = (count: number) => (count <= holds && hosts === 1 ? { hosts: 1, local_world_size: count } : count < holds ? { hosts: 1, local_world_size: count } : { hosts: count / holds, local_world_size: holds });
  const knob: Knob = {
    key: "local_world_size", label: "Devices", now, steps,
    words: (value) => (value > holds ? `${counted(value, "device")} in ${counted(shape(value).hosts, "host")}` : counted(value, "device")),
  };
  const made = slider(knob, (value) => {
    delete sizes.hosts;
    delete sizes.local_world_size;
    if (value !== now) Object.assign(sizes, shape(value));
  }).element;
  made.append(h("p", { class: "note" }, "Another number of devices needs a new plan."));
  return made;
}
