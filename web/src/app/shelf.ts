// The server's choices and everything it keeps, requested once.

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
const rivals = new Map<string, string>();

/** Ids of plans that were deleted on this page and can be restored. */
export const deleted = new Set<string>();

/** Start a search, and remember its request, so that changes of it can be tried. rival: a plan to compare with. */
export async function search(wanted: SearchAsked, rival?: string): Promise<void> {
  const found = await api.search(wanted);
  asked.set(found.id, wanted);
  if (rival) rivals.set(found.id, rival);
  location.hash = `#/search/${found.id}`;
}

/** The request of a search of this page. */
export function askedOf(id: string): SearchAsked | undefined {
  return asked.get(id);
}

/** The plan that a search's plan is compared with, if there is one. */
export function rivalOf(id: string): string | undefined {
  return rivals.get(id);
}

export function kept(): Promise<Shelves> {
  return api.kept();
}
