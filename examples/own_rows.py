"""A store of rows of one's own: it counts how often it is asked. Run: python examples/own_rows.py.

A run names it as `rows: {name: own_rows:CountingRows, report: FILE}`; nothing else of RecSmith knows of it.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path

from recsmith.training import Checkpointing, Run, RunData, train
from recsmith.training.stores.device import DeviceRows

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class CountingRows(DeviceRows):
    """Rows of the device; a store that keeps them elsewhere would fetch them where this one counts."""

    def __init__(self, model, optimizer=None, *, report: str) -> None:
        super().__init__(model, optimizer)
        self.report, self.counts = Path(report), Counter()

    def shards(self):
        """Counts the shards that are walked: of first weights, export, and what a run of yours looks at."""
        for shard in super().shards():
            self.counts["shards"] += 1
            yield shard

    def prefetch(self, batch) -> None:
        """Counts batches, before anybody trains on them, and the ids that they look up."""
        self.counts["batches"] += 1
        self.counts["ids"] += batch.sparse_features.values().numel()

    def flush(self) -> None:
        """Counts, and writes all counts: checkpoints and export ask for it."""
        self.counts["flushes"] += 1
        self.report.write_text(json.dumps(self.counts))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/counts.json"
        data = RunData(train={**CLICKS, "num_samples": 8000})
        rows = {"name": "own_rows:CountingRows", "report": report}
        train(Run(data=data, output=f"{folder}/run", rows=rows, checkpoint=Checkpointing(every=10)))
        print("the store was asked for", json.loads(Path(report).read_text()))
