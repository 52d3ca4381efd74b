"""The sharding groups of a 2D job while it trains: when what they hold is averaged.

Each group trains all tables on its own samples, and gradients of dense layers are averaged over all ranks by DDP. Every
so many steps, as the plan says, the tables' weights and the state of their optimizers are averaged over the groups
(TorchRec's `DMPCollection.sync`). Whatever leaves the job, a checkpoint, scores or the model, is averaged before.

With SGD and an average in every step this is training in one group: an update is linear in the gradient, and the mean
of R updates by means over B / R samples is the update by the mean over B samples. Other optimizers are not linear, and
rarer averages let groups look up weights that the others' samples have not changed yet.
"""

from torchrec.distributed.model_parallel import DMPCollection


class Replicas:
    """What this rank's shards have in other sharding groups.

    model: in its groups; None in a job of one. every: steps from one average to the next.
    """

    def __init__(self, model: DMPCollection | None = None, every: int = 1) -> None:
        self._model, self._every = model, every
        self._apart = False  # whether groups have trained since they were averaged

    def trained(self, step: int) -> None:
        """A step was trained, on every rank: average where it is time to. step: the steps of the run so far."""
        self._apart = self._model is not None
        if step % self._every == 0:
            self.meet()

    def meet(self) -> None:
        """Have all groups hold the same from now on, on every rank."""
        if self._apart and self._model is not None:
            self._model.sync()
            self._apart = False


ONE_GROUP = Replicas()
