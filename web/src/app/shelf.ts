// What the server offers and keeps, asked for once.

import { api, type Choices, type SearchAsked, type Shelves } from "./api";

let offered: Promise<Choices> | undefined;

export function choices(): Promise<Choices> {
  offered ??= api.choices().catch((error) => {
    offered = undefined;
    throw error;
  });
  return offered;
}

const asked = new Map<string, SearchAsked>();

/** Start a search, and remember what it was asked for, so that a change of it can be tried. */
export async function search(wanted: SearchAsked): Promise<void> {
  const found = await api.search(wanted);
  asked.set(found.id, wanted);
  location.hash = `#/search/${found.id}`;
}

/** What a search of this page was asked for. */
export function askedOf(id: string): SearchAsked | undefined {
  return asked.get(id);
}

export function kept(): Promise<Shelves> {
  return api.kept();
}
