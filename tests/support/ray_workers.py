"""What ranks of tests do as workers of Ray Train do it."""

from typing import Any


def in_a_thread(run: dict[str, Any]) -> list[Any]:
    """What a worker of Ray Train does: it trains in a thread beside the main one, in a group that is there."""
    from concurrent.futures import ThreadPoolExecutor

    from recsmith.training.launch.ray_train import train_in_group

    return [ThreadPoolExecutor(1).submit(train_in_group, run).result()]
