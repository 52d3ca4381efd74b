"""A model's tables whose rows are on servers, and the row store and training step that use them.

n distinct ids of a table in a batch, D columns of a table, B samples
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
)
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, PoolingType
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.jobs.sharded_model import NamedShard
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.steps.protocol import StepOutcome
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.systems.remote.client import TableClient

BLOCK = 65536  # rows read with one call, for the exported model


class PulledRows:
    """The distinct rows of a batch, pulled once for all collections of a model."""

    def __init__(self, client: TableClient) -> None:
        self.configs, self._client = list[BaseEmbeddingConfig](), client
        self._batch: tuple[KeyedJaggedTensor, bool] | None = None
        self._rows, self._places = dict[str, torch.Tensor](), dict[str, tuple[torch.Tensor, ...]]()

    def of(self, features: KeyedJaggedTensor) -> Iterator[tuple[BaseEmbeddingConfig, str, torch.Tensor, torch.Tensor]]:
        """Yield for each feature (table, feature, the table's rows (n, D), the row among these that each id reads)."""
        training = torch.is_grad_enabled()
        stale = self._batch is None or self._batch[0] is not features or self._batch[1] != training
        if stale or (training and not self._client.lookups):  # a step has been pushed since
            self._pull(features, training)
            self._batch = features, training
        for config in self.configs:
            for name, places in zip(config.feature_names, self._places[config.name], strict=True):
                yield config, name, self._rows[config.name], places

    def _pull(self, features: KeyedJaggedTensor, training: bool) -> None:
        bags, ids = features.to_dict(), dict[str, torch.Tensor]()
        for config in self.configs:
            looked_up = [bags[name].values() for name in config.feature_names]
            ids[config.name], places = torch.cat(looked_up).unique(return_inverse=True)
            self._places[config.name] = places.split([len(each) for each in looked_up])
        self._rows = self._client.pull(ids, train=training)
        if training:
            for table, each in self._rows.items():
                each.requires_grad_()
                self._client.lookups.append((table, ids[table], each))


class RemoteTables(nn.Module):
    """Pooled tables without weights of their own: each pass pulls the distinct rows of its batch."""

    on_servers = True

    def __init__(self, collection: EmbeddingBagCollection, pulled: PulledRows) -> None:
        super().__init__()
        self._configs, self._pulled = collection.embedding_bag_configs(), pulled
        self._names = list(collection._embedding_names)
        pulled.configs += self._configs

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Vectors (B, sum of D), pooled as the collection pools them."""
        bags = features.to_dict()
        pooled = [
            _pooled(rows, places, bags[name], config.pooling)
            for config, name, rows, places in self._pulled.of(features)
            if isinstance(config, EmbeddingBagConfig)
        ]
        return KeyedTensor(self._names, [each.shape[1] for each in pooled], torch.cat(pooled, dim=1))


class RemoteSequences(nn.Module):
    """Tables that are not pooled; their rows are pulled like those of pooled tables."""

    on_servers = True

    def __init__(self, collection: EmbeddingCollection, pulled: PulledRows) -> None:
        super().__init__()
        self._pulled = pulled
        pulled.configs += collection.embedding_configs()

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """The rows of each feature's ids (n, D)."""
        bags = features.to_dict()
        return {
            name: JaggedTensor(rows.index_select(0, places), lengths=bags[name].lengths())
            for config, name, rows, places in self._pulled.of(features)
            if not isinstance(config, EmbeddingBagConfig)
        }


def _pooled(rows: torch.Tensor, places: torch.Tensor, bag: Any, pooling: PoolingType) -> torch.Tensor:
    """The rows of each bag, summed or averaged (B, D)."""
    if not len(rows):
        return rows.new_zeros(len(bag.lengths()), rows.shape[1]) + rows.sum()
    mode = "mean" if pooling is PoolingType.MEAN else "sum"
    weights = bag.weights_or_none()
    return nn.functional.embedding_bag(
        places, rows, bag.offsets().to(places), mode=mode, include_last_offset=True,
        per_sample_weights=None if mode == "mean" else weights,
    )  # fmt: skip


def with_remote_tables(model: nn.Module, client: TableClient) -> None:
    """Replace every embedding collection of a model by one whose rows are on servers."""
    pulled = PulledRows(client)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, EmbeddingBagCollection):
                setattr(parent, name, RemoteTables(child, pulled))
            elif isinstance(child, EmbeddingCollection):
                setattr(parent, name, RemoteSequences(child, pulled))


class RemoteRows(DeviceRows):
    """A row store with tables on servers and dense layers on this trainer.

    At most one step is under way: it is pushed, and not committed yet.
    """

    def __init__(
        self, model: nn.Module, optimizer: CombinedOptimizer, client: TableClient, names: dict[str, str]
    ) -> None:
        super().__init__(model, optimizer)
        self.client, self._names = client, names
        self.due: Callable[[], object] | None = None  # the update of dense layers by the step under way
        self.position: Any = None  # position in the data after the committed steps

    @property
    def server_s(self) -> float:
        """Mean seconds per step spent waiting for pulls and pushes."""
        return self.client.counts.server_s / max(1, self.client.counts.steps)

    def shards(self) -> Iterator[NamedShard]:
        """Yield dense layers, and this trainer's share of the tables, read from the servers block by block."""
        yield from super().shards()
        client = self.client
        for table, name in self._names.items():
            for shard in client.shards(table):
                if shard.rank % client.world == client.rank:
                    rows = shard.rows[1] - shard.rows[0]
                    for first in range(0, rows, BLOCK):
                        tensor = client.read(shard, first, min(first + BLOCK, rows))
                        yield NamedShard(name, (shard.rows[0] + first, shard.columns[0]), tensor, everywhere=False)

    def whole(self) -> dict[str, WholeTensor]:
        """Type and shape of each dense parameter and each table."""
        found = super().whole()
        for table, name in self._names.items():
            last = self.client.shards(table)[-1]
            found[name] = WholeTensor(torch.float32, (last.rows[1], last.columns[1]))
        return found

    def flush(self) -> None:
        """Wait until the step under way is committed, then update dense layers by its gradients.

        Raises:
            Regroup: the trainers have changed, and the step is void.
        """
        due, self.due = self.due, None
        if due is not None:
            self.client.commit()
            due()


class RemoteStep:
    """A step: pull, forward, backward, push. Dense layers are updated once all trainers have pushed.

    A leased batch waits for no other trainer: dense layers are pulled with it, and servers apply its gradients at once.
    """

    batches_ahead = 0

    def __init__(self, job: ShardedJob) -> None:
        assert isinstance(job.rows, RemoteRows)
        self.job, self.rows = job, job.rows

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train on the next batch."""
        batch, client = next(batches), self.rows.client
        leased = client.batch is not None
        if leased:
            client.pull_dense()
        self.rows.flush()
        self.job.optimizer.zero_grad()
        client.lookups = []
        loss, (shown_loss, logits, labels, place) = self.job.model(batch)
        loss.backward()
        client.push()
        self.rows.due = None if leased else partial(self._update, place.state)
        return StepOutcome(shown_loss, logits, labels, (place,))

    def _update(self, position: Any) -> None:
        self.job.optimizer.step()
        self.rows.position = position

    def pause(self) -> None:
        """Wait until the step under way is committed."""
        self.rows.flush()

    def resume(self) -> None:
        """Nothing to do: `pause` sets nothing aside."""
