"""Architecture searches for people: the space and its prices, samples, and a page that plots AUC over price."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from recsmith.files import Raw, encode
from recsmith.reports.compressions import curve_picture
from recsmith.searching import SearchSpace
from recsmith.searching.samples import picked
from recsmith.units import counted, format_size, format_time

if TYPE_CHECKING:
    from recsmith.searching.outcome import SearchOutcome
    from recsmith.training.results.points import SearchedPoint

SCHEMA = "recsmith/search/1"
MOST = 12  # tables whose prices are listed, and choices of a sample
NANO = 1e9


def price_text(space: SearchSpace, price: float) -> str:
    """A price in the unit of its space: seconds or bytes."""
    return format_time(price) if space.unit == "step" else format_size(round(price))


def space_lines(space: SearchSpace) -> list[str]:
    """Each part with the price of each choice, and the price of the cheapest sample."""
    least, count = space.price(space.cheapest), 1
    for part in space.parts:
        count *= len(part.options)
    width = max(len(part.name) for part in space.parts)
    return [
        f"{counted(len(space.tables), 'table')}, {counted(len(space.layers), 'layer')}, "
        f"{f'{count:,}' if count < 10**6 else f'{count:.0e}'} samples; prices are of {space.unit}",
        *(f"{part.name:{width}}  " + ", ".join(f"{c}: {price_text(space, c.price)}" for c in part.options)
          for part in space.parts[:MOST]),
        *([f"... and {len(space.parts) - MOST} more"] if len(space.parts) > MOST else []),
        f"price: {price_text(space, space.whole)} as it is, {price_text(space, least)} for the cheapest sample "
        f"({least / space.whole:.1%})",
        f"of these, {price_text(space, space.fixed)} ({space.fixed / space.whole:.1%}) have no choice, such as dense "
        f"layers without --layers; what has one takes {price_text(space, space.whole - space.fixed)} as it is and "
        f"{price_text(space, least - space.fixed)} at least, and --under counts both",
    ]  # fmt: skip


def found_lines(found: "SearchOutcome") -> list[str]:
    """A line for each sample: price by its choices and planned anew, step, bytes, AUC in the one network, choices."""
    space, whole = found.space, found.whole
    head = f"{'':10}{'price':>10}{'planned':>12}{'step':>12}{'weights':>12}{'AUC*':>9}  choices"
    lines = [
        head,
        f"{'as it is':10}{'100%':>10}{'100%':>12}{format_time(whole.step_s):>12}{format_size(whole.weight_bytes):>12}",
    ]
    for each in found.samples:
        made = each.replanned
        lines.append(
            f"{each.name:10}{each.price / space.whole:>10.1%}{made.price / whole.price:>12.1%}"
            f"{format_time(made.step_s):>12}{format_size(made.weight_bytes):>12}{each.network_auc:>9.4f}  "
            + _choices_text(space, each.picks)
        )
    lines.append("* of the sample as a part of the one network, on data.test; --retrain trains it from scratch")
    return lines


def _choices_text(space: SearchSpace, picks: tuple[int, ...]) -> str:
    found = [f"{name} {choice}" for name, choice in picked(space, picks).items()]
    return ", ".join(found[:MOST]) + (f", ... ({len(found)})" if len(found) > MOST else "")


def found_to_raw(found: "SearchOutcome") -> Raw:
    """The outcome of a search as plain data."""
    return {"schema": SCHEMA, **encode(found)}


def point_lines(points: Sequence["SearchedPoint"]) -> list[str]:
    """A line for each trained variant: its price relative to the run's, and AUC with its 95 % interval over seeds."""
    width, whole = max(len(point.name) for point in points), points[0].price
    return [f"{'':{width}} {'price':>8}  AUC", *(
        f"{point.name:{width}} {point.price / whole:>8.1%}  {point.auc:.4f}"
        + ("" if point.auc_within is None else f" ± {point.auc_within:.4f}")
        for point in points
    )]  # fmt: skip


def points_picture(space: SearchSpace, points: Sequence["SearchedPoint"]) -> str:
    """An SVG of AUC (y) over price (x), with a line each for the search, uniform widths and the power rule."""
    from recsmith.training.results.points import CompressionPoint

    scale = NANO if space.unit == "step" else 1.0
    drawn = [
        CompressionPoint(
            method=point.kind, factor=1.0, weight_bytes=round(point.price * scale), map_bytes=0, auc=point.auc or 0.0,
            auc_within=point.auc_within, seeds=1,
        )
        for point in points
    ]  # fmt: skip
    across = "predicted step" if space.unit == "step" else "bytes of weights"
    return curve_picture(drawn, across=across, shown=lambda price: price_text(space, price / scale))


def search_page(found: "SearchOutcome", points: Sequence["SearchedPoint"]) -> str:
    """An HTML page that needs no network: the plot, and the tables."""
    tables = "\n".join(f"<pre>{escape(line_block)}</pre>" for line_block in (
        "\n".join(point_lines(points)), "\n".join(found_lines(found)), "\n".join(space_lines(found.space)),
    ))  # fmt: skip
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Architecture search</title>'
        '<body style="font-family:sans-serif;max-width:60em;margin:2em auto">'
        f"<h1>Price against AUC</h1>\n{points_picture(found.space, points)}\n{tables}\n</body></html>\n"
    )
