"""What a replay of a stream found, without one."""

from recsmith.training.results.arms import OnlineResult, PeriodLoss, Replayed, judged


def a_stream() -> OnlineResult:
    """Two arms, two seeds, periods 1 to 3 of four scored one and two periods ahead; the window of periods pays."""
    return judged([_arm(name, seed, ne, cost) for seed in (0, 1) for name, ne, cost in
                   (("incremental", 0.95, 2.0), ("window", 0.9, 5.0))], 1)  # fmt: skip


def _arm(name: str, seed: int, ne: float, cost: float) -> Replayed:
    losses = tuple(
        PeriodLoss(period=at, ahead=ahead, logloss=(ne - 0.01 * at) / 2, ne=ne - 0.01 * at + 0.05 * (ahead - 1))
        for at in range(4)
        for ahead in (1, 2)
        if at >= ahead
    )
    return Replayed(arm=name, seed=seed, losses=losses, cpu_s=cost)
