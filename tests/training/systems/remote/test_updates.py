"""How gradients change rows on a server: by the formulas, in float64, and nothing else."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrec")

from recsmith.training.systems.remote.updates import HeldShard, merged  # noqa: E402

ROWS, WIDTH, RATE, EPS = 50, 3, 0.1, 1e-8


@pytest.mark.parametrize("kept", [None, (ROWS,), (ROWS, WIDTH)], ids=["sgd", "rowwise_adagrad", "adagrad"])
def test_rows_change_by_the_formulas(kept: tuple[int, ...] | None) -> None:
    """Two trainers, who share some rows, twice."""
    chance = torch.Generator().manual_seed(0)
    held = HeldShard(torch.rand(ROWS, WIDTH, generator=chance), None if kept is None else torch.zeros(kept))
    weights, state = held.weights.double(), None if kept is None else torch.zeros(kept, dtype=torch.float64)
    for _ in range(2):
        ids = [torch.randperm(ROWS, generator=chance)[:9].sort().values for _ in range(2)]
        parts = [(each, torch.randn(9, WIDTH, generator=chance)) for each in ids]
        total = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
        for each, gradients in parts:
            total[each] += gradients.double() / 2
        held.update(*merged(parts, 1 / 2), RATE, EPS)
        touched = torch.cat(ids).unique()
        if state is None:
            weights -= RATE * total
        else:
            state += total.pow(2).mean(1) if state.dim() == 1 else total.pow(2)
            root = state.sqrt() + EPS
            change = total / (root[:, None] if state.dim() == 1 else root)
            weights[touched] -= RATE * change[touched]
    assert torch.allclose(held.weights.double(), weights, rtol=0, atol=1e-6)
    if state is not None:
        assert held.state is not None
        assert torch.allclose(held.state.double(), state, rtol=1e-6, atol=1e-12)
