// What the server offers and keeps, asked for once.

import { api, type Choices, type Shelves } from "./api";

let offered: Promise<Choices> | undefined;

export function choices(): Promise<Choices> {
  offered ??= api.choices().catch((error) => {
    offered = undefined;
    throw error;
  });
  return offered;
}

export function kept(): Promise<Shelves> {
  return api.kept();
}
