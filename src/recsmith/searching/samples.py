"""Samples of a search as settings of its run, which can be read back from JSON; and which samples to train.

N parts of a space, K choices of the part that has most
"""

import json
from collections.abc import Iterator, Sequence
from glob import escape
from heapq import merge
from typing import Any

import numpy as np

from recsmith._types import Floats
from recsmith.embeddings import CompressionRule
from recsmith.files import encode
from recsmith.searching.space import BOTTOM, TOP, PartChoice, PartChoices, Picks, SearchSpace


def picked(space: SearchSpace, picks: Picks) -> dict[str, PartChoice]:
    """Part name -> the choice that a sample makes for it."""
    return {part.name: part.options[pick] for part, pick in zip(space.parts, picks, strict=True)}


def rules_of(space: SearchSpace, picks: Picks) -> tuple[CompressionRule, ...]:
    """How a sample stores its tables: a rule for each table that differs from the run's."""
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
    """A sample as settings of the run, 'key=value', as `recsmith train --set` takes them."""
    rules = rules_of(space, picks)
    layers = sizes_of(space, picks, sizes) if space.layers else {}
    return (
        *([rules_setting(rules)] if rules else []),
        *(f"model.{part}={list(layers[part])}" for part in (BOTTOM, TOP) if part in layers),
    )


def rules_setting(rules: Sequence[CompressionRule]) -> str:
    """Compression rules as one setting of a run."""
    default = {name: field.default for name, field in CompressionRule.__dataclass_fields__.items()}
    raw: list[Any] = [{k: v for k, v in encode(rule).items() if v != _plain(default.get(k))} for rule in rules]
    return f"model.compression={json.dumps(raw)}"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value  # type: ignore[arg-type]


def frontier(space: SearchSpace, scores: Floats, under: float) -> list[Picks]:
    """Samples with a price of at most `under` of the run's, costliest first: the best for each price by scores (N, K).

    From the choices with the highest scores, one part after the other takes a cheaper choice: the one that loses the
    least score per price saved. No sample of that price has a higher score: scores and prices are sums (Everett 1963).
    """
    picks = [max(range(len(p.options)), key=lambda k, n=n: scores[n, k]) for n, p in enumerate(space.parts)]
    found = [tuple(picks)]
    for _, number, choice in merge(*(_cheaper(space.parts[n], scores[n], n, pick) for n, pick in enumerate(picks))):
        picks[number] = choice
        found.append(tuple(picks))
    ceiling = space.ceiling(under) * (1 + 1e-9)
    return [each for each in found if space.price(each) <= ceiling]


def _cheaper(part: PartChoices, scores: Floats, number: int, choice: int) -> Iterator[tuple[float, int, int]]:
    """The next cheaper choices of a part: (score lost per price saved, number of the part, choice)."""
    prices = [each.price for each in part.options]
    while left := [k for k, price in enumerate(prices) if price < prices[choice]]:
        lost = {k: float(scores[choice] - scores[k]) / (prices[choice] - prices[k]) for k in left}
        choice = min(left, key=lambda k: (lost[k], prices[k]))
        yield lost[choice], number, choice


def drawn(space: SearchSpace, scores: Floats, under: float, count: int, seed: int) -> list[Picks]:
    """Up to `count` different samples drawn by softmax of the scores (N, K), each below the ceiling of price."""
    rng, ceiling = np.random.Generator(np.random.Philox(seed)), space.ceiling(under)
    noise = rng.gumbel(size=(20 * count, *scores.shape))
    tried = [tuple(row.tolist()) for row in (scores + noise).argmax(axis=2)]
    return [each for each in dict.fromkeys(tried) if space.price(each) <= ceiling][:count]
