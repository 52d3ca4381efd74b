"""The sharding groups of a 2D job while it trains: when their copies are averaged.

Each group trains all tables on its own samples, and gradients of dense layers are averaged over all ranks by DDP. At
intervals that the plan gives, the tables' weights and the state of their optimizers are averaged over the groups
(TorchRec's `DMPCollection.sync`). Checkpoints, scores and the exported model are always averaged first.

With SGD and an average after every step this equals training in one group: an update is linear in the gradient, and the
mean of R updates by means over B / R samples is the update by the mean over B samples. Other optimizers are not linear,
and with rarer averages groups look up weights that other groups' samples have not changed yet.
"""

from torchrec.distributed.model_parallel import DMPCollection


class Replicas:
    """The copies of this rank's shards in other sharding groups.

    model: the model in its groups; None in a job of one group. every: steps between averages.
    """

    def __init__(self, model: DMPCollection | None = None, every: int = 1) -> None:
        self._model, self._every = model, every
        self._apart = False  # whether groups have trained since the last average

    def trained(self, step: int) -> None:
        """Record a trained step, on every rank, and average if it is due. step: steps of the run so far."""
        self._apart = self._model is not None
        if step % self._every == 0:
            self.meet()

    def meet(self) -> None:
        """Average all groups now, on every rank, so that they hold the same."""
        if self._apart and self._model is not None:
            self._model.sync()
            self._apart = False


ONE_GROUP = Replicas()
