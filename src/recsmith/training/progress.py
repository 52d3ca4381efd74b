"""The progress of a run in a line."""

from typing import Any

from recsmith.files import Raw
from recsmith.units import format_time


def progress_words(words: Raw) -> str:
    """What a job told (telling.py) as a line for people."""
    if "note" in words:
        return str(words["note"])
    scores = words["scores"]
    parts = ", ".join(f"{part} {_ms(seconds)}" for part, seconds in words["parts_s"].items())
    whole = f"/{words['steps']:,}" if words.get("steps") else ""
    left = f", {format_time(words['left_s'])} left" if words.get("left_s") is not None else ""
    return (
        f"step {words['step']:,}{whole}: log loss {scores['logloss']:.5f}, NE {scores['ne']:.4f}, "
        f"AUC {scores['auc']:.4f}, {words['samples_per_s']:,.0f} samples/s (step {_ms(words['step_s'])}: {parts}){left}"
    )


def _ms(seconds: Any) -> str:
    return f"{seconds * 1e3:.1f} ms"
