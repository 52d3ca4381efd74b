// A question before the user leaves something that is not saved.

let reason: () => string = () => "";

/** Ask before the view is left while `why` returns text; returns a function that stops asking. */
export function guardLeaving(why: () => string): () => void {
  reason = why;
  const closing = (event: BeforeUnloadEvent) => { if (why()) event.preventDefault(); };
  window.addEventListener("beforeunload", closing);
  return () => {
    window.removeEventListener("beforeunload", closing);
    if (reason === why) reason = () => "";
  };
}

/** Whether the view may be left; asks the user first. */
export function mayLeave(): boolean {
  const words = reason();
  return !words || window.confirm(words);
}
