// Which changes of this plan's job pay.

import { adviceList } from "../advice";
import type { Advice } from "../data";
import { part } from "./part";

export const advicePart = (advice: Advice): HTMLElement => part("What pays", null, adviceList(advice));
