"""`recsmith compress --tune`: methods and factors trained on the user's data."""

from pathlib import Path
from typing import Any

from recsmith.cli.progress import end_line, note
from recsmith.errors import UsageError


def read_factors(text: str) -> list[float]:
    """'2,4,8' or '2x,4x' as numbers above 1."""
    try:
        found = [float(word.strip().removesuffix("x")) for word in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(1 < factor < float("inf") for factor in found):
        raise UsageError(f"--factors is '{text}'; write how many times smaller, such as 2,4,8")
    return found


def read_methods(text: str, known: tuple[str, ...]) -> list[str]:
    """Methods with commas between them."""
    found = list(dict.fromkeys(word.strip() for word in text.split(",")))
    odd = next((name for name in found if name not in known), None)
    if odd is not None:
        raise UsageError(f"--methods names '{odd}'; known: {', '.join(known)}")
    return found


def tune(data: str, folder: str, words: dict[str, Any], known: tuple[str, ...]) -> None:
    """Train what is asked for, print the curve, and write curve.json and curve.svg into the folder."""
    from recsmith.files import dump_json, write_text
    from recsmith.reports.compression_curves import curve_lines, curve_picture
    from recsmith.reports.layout import show_lines
    from recsmith.training.compressing import data_run
    from recsmith.training.compression_curve import compression_curve, curve_to_raw

    methods, factors = read_methods(words["methods"], known), read_factors(words["factors"])
    fields = {name: words[name] for name in ("tables", "above_rows", "operation")}
    curve = compression_curve(
        data_run(data, None), methods, factors, words["seeds"], folder, on_progress=note, **fields
    )
    end_line()
    show_lines(curve_lines(curve))
    write_text(str(Path(folder) / "curve.json"), dump_json(curve_to_raw(curve)))
    write_text(str(Path(folder) / "curve.svg"), curve_picture(curve))
    note(f"wrote {folder}/curve.json and {folder}/curve.svg; the same command goes on where it was ended")
