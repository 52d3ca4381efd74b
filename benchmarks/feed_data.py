"""The data of feed.py and feed_losses.py, heavy or light to read, and the settings of a feed of them."""

from typing import Any

from recsmith.data import Dataset, Position, open_dataset, spec_from_raw
from recsmith.feeding import FeedSettings

BATCH, WINDOW, FEATURES = 1024, 16_384, 12


def heavy(samples: int) -> dict[str, Any]:
    """Lists that are drawn, cut, hashed and made pairs and triples of."""
    names = [f"list_{i}" for i in range(FEATURES)]
    listed: list[dict[str, Any]] = []
    for name in names:
        listed += [{"op": "first", "feature": name, "count": 24}]
        listed += [
            {"op": "n_gram", "feature": name, "length": n, "num_embeddings": 10**6, "into": f"{name}_{n}"}
            for n in (2, 3)
        ]
        listed += [{"op": "hash", "feature": name, "num_embeddings": 10**5}]
    features = [{"name": n, "num_embeddings": 10**7, "pooling_factor": 20, "lengths": "poisson"} for n in names]
    return {"format": "generator", "num_samples": samples, "dense": 4, "features": features, "transforms": listed}


def light(samples: int) -> dict[str, Any]:
    """Two features of one id."""
    features = [{"name": name, "num_embeddings": 10**6} for name in ("user", "item")]
    return {"format": "generator", "num_samples": samples, "dense": 1, "features": features}


def settings(samples: int, window: int = WINDOW, *, raw: dict[str, Any] | None = None) -> tuple[FeedSettings, Dataset]:
    raw = raw or heavy(samples)
    dataset = open_dataset(spec_from_raw(dict(raw), "a benchmark"))
    position = Position(epoch=0, used=0, seed=0, shuffle=True, dataset=dataset.source.digest, window=window)
    return FeedSettings(data=raw, position=position, rank=0, world_size=1, batch_size=BATCH), dataset
