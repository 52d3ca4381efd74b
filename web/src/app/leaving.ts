// A question before something that is not kept is left behind.

let reason: () => string = () => "";

/** Ask before the view is left while `why` has words; returns what ends the asking. */
export function guardLeaving(why: () => string): () => void {
  reason = why;
  const closing = (event: BeforeUnloadEvent) => { if (why()) event.preventDefault(); };
  window.addEventListener("beforeunload", closing);
  return () => {
    window.removeEventListener("beforeunload", closing);
    if (reason === why) reason = () => "";
  };
}

/** Whether the view may be left; a user who says no stays. */
export function mayLeave(): boolean {
  const words = reason();
  return !words || window.confirm(words);
}
