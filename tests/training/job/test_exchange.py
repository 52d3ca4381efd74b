"""Rectangles of tensors from ranks that hold them in one way to ranks that want them in another."""

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import RecSmithError

pytestmark = pytest.mark.usefixtures("torchrec")
Layout = dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]


@st.composite
def cut(draw: Any, rows: int, columns: int, ranks: int) -> list[Layout]:
    """A tensor as ranks may hold it: cut by rows and columns, each part on one rank or on several."""
    edges = [sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))}) for size in (rows, columns)]
    layouts: list[Layout] = [{"t": []} for _ in range(ranks)]
    for top, bottom in pairwise(edges[0]):
        for left, right in pairwise(edges[1]):
            for rank in draw(st.sets(st.integers(0, ranks - 1), min_size=1)):
                layouts[rank]["t"].append(((top, left), (bottom - top, right - left)))
    return layouts


@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_every_rank_gets_what_it_wants_and_nothing_that_it_has(data: Any, rows: int, columns: int, ranks: int) -> None:
    from recsmith.training.job.exchange import transfers

    whole = np.arange(rows * columns).reshape(rows, columns)
    held, wanted = data.draw(cut(rows, columns, ranks)), data.draw(cut(rows, columns, ranks))

    def part(rectangle: Any) -> Any:
        (top, left), (height, width) = rectangle
        return whole[top : top + height, left : left + width]

    made = [[np.full(shape, -1) for _, shape in each["t"]] for each in wanted]
    for each in transfers("t", held, wanted):
        assert (each.corner, each.shape) == (each.corner, tuple(map(int, each.shape)))
        (top, left), _ = held[each.source]["t"][each.piece]
        a, b = each.corner[0] - top, each.corner[1] - left
        sent = part(held[each.source]["t"][each.piece])[a : a + each.shape[0], b : b + each.shape[1]]
        assert sent.shape == each.shape
        (top, left), _ = wanted[each.target]["t"][each.wanted]
        a, b = each.corner[0] - top, each.corner[1] - left
        made[each.target][each.wanted][a : a + each.shape[0], b : b + each.shape[1]] = sent
        if each.source != each.target:  # the target holds no rectangle that this came from
            assert held[each.source]["t"][each.piece] not in held[each.target]["t"]
    for layout, arrays in zip(wanted, made, strict=True):
        for rectangle, array in zip(layout["t"], arrays, strict=True):
            assert (array == part(rectangle)).all()


def test_what_nobody_holds_is_told() -> None:
    from recsmith.training.job.exchange import transfers

    half: Layout = {"t": [((0, 0), (2, 4))]}
    whole: Layout = {"t": [((0, 0), (4, 4))]}
    with pytest.raises(RecSmithError, match=r"'t' cannot be moved: no rank holds all of its \(4, 4\) at \(0, 0\)"):
        transfers("t", [half], [whole])
    assert prod(transfers("t", [whole], [half])[0].shape) == 8
    assert transfers("n", [{"n": [((), ())]}], [{"n": [((), ())]}])[0].shape == ()
