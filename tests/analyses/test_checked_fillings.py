"""The checker's own fillings of a rank are worth what the best of all of them is, and never less."""

from itertools import product

import pytest
from support.cases import Pick, cluster, seeded, table, workload

from recsmith.analyses import checked_fillings
from recsmith.analyses.checked_fillings import LEAST, WHOLE, filling_prices, most_worth
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import Statement
from recsmith.costs import cost_model
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans.proofs import LargePiece, LeafProof
from recsmith.problems import build_problem


def drawn(pick: Pick) -> tuple[list[list[int]], list[int]]:
    """Parts that some pieces take of three limits, of which one may not count, and their worths."""
    pieces = range(pick((1, 2, 3, 4)))
    sizes = [int(WHOLE * share) for share in (0.19, 0.26, 0.34, 0.41, 0.5, 0.52, 0.77, 1.0)]
    parts = [[pick(sizes), pick((0, pick(sizes))), pick((0, 1, pick(sizes)))] for _ in pieces]
    return parts, [pick(range(1, 100)) for _ in pieces]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_filling_is_found(seed: int, monkeypatch: pytest.MonkeyPatch):
    parts, worths = drawn(seeded(seed))
    times = product(range(6), repeat=len(parts))
    fitting = [
        counts for counts in times
        if all(sum(n * own[limit] for n, own in zip(counts, parts, strict=True)) <= WHOLE for limit in range(3))
    ]  # fmt: skip
    best = max(sum(n * worth for n, worth in zip(counts, worths, strict=True)) for counts in fitting)
    assert most_worth(parts, worths) == best
    for most in (0, 1, 3, 10):
        monkeypatch.setattr(checked_fillings, "MOST_TRIED", most)
        assert best <= most_worth(parts, worths) <= 6 * sum(worths)


@pytest.mark.parametrize("most", [0, 1, 100])
def test_pieces_of_unlike_limits_fill_a_rank_together(most: int, monkeypatch: pytest.MonkeyPatch):
    """None of the limits bounds all of them, and each may be full."""
    monkeypatch.setattr(checked_fillings, "MOST_TRIED", most)
    assert most_worth([[WHOLE, 0, 0], [0, WHOLE // 2, 0], [0, 0, WHOLE]], [5, 4, 3]) == 5 + 2 * 4 + 3


def test_many_pieces_end_in_bounded_work(monkeypatch: pytest.MonkeyPatch):
    """Hundred pieces that each take a thousandth have more fillings than can be looked at."""
    monkeypatch.setattr(checked_fillings, "MOST_TRIED", 1_000)
    parts = [[LEAST + 7919 * piece, LEAST + 104729 * (piece * piece % 100)] for piece in range(100)]
    worths = [10**6 + 37 * (piece * piece % 83) for piece in range(100)]
    assert 999 * 10**6 <= most_worth(parts, worths) <= 1_001 * (10**6 + 83 * 37)


@pytest.fixture(scope="module")
def statement() -> Statement:
    tables = workload(table("a", 4000, 64, 20.0), table("b", 4000, 64, 20.0), table("c", 100, 8), batch_size=512)
    return Statement(cost_model("analytic").compile(build_problem(tables, cluster(4))))


def proof_with(*large: LargePiece) -> LeafProof:
    return LeafProof(ready=1.0, rest=1.0, byte=0.0, mix=(), plane=0, large=large)


def test_pieces_that_take_no_less_are_worth_as_much(statement: Statement):
    """Of equal tables each piece is worth what that of the other is, and so are wider ones; narrower ones nothing."""
    piece = statement.of_mode[next(iter(statement.of_mode))].start + 7
    mode, width, alone = int(statement.mode[piece]), int(statement.width[piece]), float(statement.ready[piece].max())
    open_ = statement.evaluator.group[None] >= 0
    for longest, times in ((1.01, 1), (2.01, 2), (3.5, 3)):
        plans = Plans((0.0, longest * alone), (0.0, 1.0), open_, open_[0])
        worth, most = filling_prices(statement, plans, proof_with(LargePiece(mode=mode, width=width, worth=2.0)))
        assert most == 2 * times
        mine = (statement.mode == mode) & (statement.width >= width)
        assert (worth[mine & statement.fits] == 2.0).all()
        assert (worth[(statement.mode == mode) & (statement.width < width)] == 0.0).all()
        assert (
            worth[(statement.table == 1) & (statement.width == width) & statement.at_will[statement.mode]] > 0
        ).any()
    plans = Plans((0.0, 0.9 * alone), (0.0, 1.0), open_, open_[0])
    worth, most = filling_prices(statement, plans, proof_with(LargePiece(mode=mode, width=width, worth=2.0)))
    assert not worth.any()
    assert most == 0


@pytest.mark.parametrize(("mode", "width"), [(10**6, 4), (-1, 4), (0, 6)])
def test_a_piece_that_is_not_there_is_refused(mode: int, width: int, statement: Statement):
    open_ = statement.evaluator.group[None] >= 0
    with pytest.raises(CorruptFile, match="does not exist"):
        filling_prices(statement, Plans((0.0, 1.0), (0.0, 1.0), open_, open_[0]),
                       proof_with(LargePiece(mode=mode, width=width, worth=1.0)))  # fmt: skip


@pytest.mark.parametrize("worth", [-1.0, float("nan"), float("inf")])
def test_worths_below_zero_are_no_proof(worth: float):
    with pytest.raises(UsageError):
        LargePiece(mode=0, width=4, worth=worth)
    with pytest.raises(UsageError, match="at most 300"):
        proof_with(*[LargePiece(mode=0, width=4, worth=1.0)] * 301)
