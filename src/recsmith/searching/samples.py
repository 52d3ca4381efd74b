"""Samples of a search as settings of its run, which rebuild from JSON; and which samples are worth training.

N parts of a space, K choices of the part that has most
"""

import json
from collections.abc import Sequence
from glob import escape
from typing import Any

import numpy as np

from recsmith._types import Floats
from recsmith.embeddings import CompressionRule
from recsmith.files import encode
from recsmith.searching.space import BOTTOM, TOP, PartChoice, Picks, SearchSpace

STEPS = 60  # of the multiplier between none and one that leaves the cheapest of all


def picked(space: SearchSpace, picks: Picks) -> dict[str, PartChoice]:
    """The choice of each part by its name."""
    return {part.name: part.options[pick] for part, pick in zip(space.parts, picks, strict=True)}


def rules_of(space: SearchSpace, picks: Picks) -> tuple[CompressionRule, ...]:
    """How the tables of a sample are stored: a rule for each that is not as the run has it."""
    found = picked(space, picks)
    return tuple(
        CompressionRule(
            method="truncated", tables=escape(each.name), above_rows=0, widths=(found[each.name].width,),
            rows=found[each.name].rows,
        )
        for each in space.tables
        if found[each.name] != each.options[each.largest]
    )  # fmt: skip


def sizes_of(space: SearchSpace, picks: Picks, sizes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Layer sizes of a sample: bottom and top. sizes: of the run, for layers without a choice."""
    found = picked(space, picks)
    widths = {
        part: [found[f"{part}.{n}"].width if f"{part}.{n}" in found else width for n, width in enumerate(own)]
        for part, own in sizes.items()
    }
    return {part: tuple(width for width in own if width) for part, own in widths.items()}


def settings_of(space: SearchSpace, picks: Picks, sizes: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """A sample as settings over the run, 'key=value': what `recsmith train --set` takes."""
    rules = rules_of(space, picks)
    layers = sizes_of(space, picks, sizes) if space.layers else {}
    return (
        *([rules_setting(rules)] if rules else []),
        *(f"model.{part}={list(layers[part])}" for part in (BOTTOM, TOP) if part in layers),
    )


def rules_setting(rules: Sequence[CompressionRule]) -> str:
    """Rules of stored tables as a setting."""
    default = {name: field.default for name, field in CompressionRule.__dataclass_fields__.items()}
    raw: list[Any] = [{k: v for k, v in encode(rule).items() if v != _plain(default.get(k))} for rule in rules]
    return f"model.compression={json.dumps(raw)}"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value  # type: ignore[arg-type]


def best_under(space: SearchSpace, scores: Floats, multiplier: float) -> Picks:
    """The choice of each part with the largest score less the multiplier times its price's share of the run's."""
    return tuple(
        max(range(len(part.options)), key=lambda k: scores[n, k] - multiplier * part.options[k].price / space.whole)
        for n, part in enumerate(space.parts)
    )


def frontier(space: SearchSpace, scores: Floats, under: float) -> list[Picks]:
    """Samples whose price is at most `under` of the run's, dearest first: the best of each price by the scores (N, K).

    A price multiplier is raised until the sum of prices is low enough, which is exact for sums (Everett 1963).
    """
    ceiling = space.ceiling(under)
    spread = float(np.ptp(scores[np.isfinite(scores)])) + 1.0
    steps = [max((c.price for c in p.options), default=0) - min(c.price for c in p.options) for p in space.parts]
    least = min((each for each in steps if each > 0), default=space.whole) / space.whole
    largest = 2 * spread * max(len(part.options) for part in space.parts) / least
    multipliers = [0.0, *np.geomspace(1e-4 * spread, largest, STEPS)]
    found = dict.fromkeys([*(best_under(space, scores, float(each)) for each in multipliers), space.cheapest])
    return sorted((each for each in found if space.price(each) <= ceiling * (1 + 1e-9)), key=space.price, reverse=True)


def drawn(space: SearchSpace, scores: Floats, under: float, count: int, seed: int) -> list[Picks]:
    """Up to so many different samples drawn by softmax of the scores (N, K), each under the ceiling."""
    rng, ceiling = np.random.Generator(np.random.Philox(seed)), space.ceiling(under)
    noise = rng.gumbel(size=(20 * count, *scores.shape))
    tried = [tuple(row.tolist()) for row in (scores + noise).argmax(axis=2)]
    return [each for each in dict.fromkeys(tried) if space.price(each) <= ceiling][:count]
