"""What a system is asked of a run that is read and built: what it says, what goes with it, its data, its tables.

Tables are those of the model; without torch, but for what stands behind TYPE_CHECKING.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsmith.plans import Plan
from recsmith.training.seams.predicting import SystemTold

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torchrec import EmbeddingConfig

    from recsmith.data import Dataset
    from recsmith.data.dealing import Deal
    from recsmith.training.run.run import Run, RunModel, RunTable
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource
    from recsmith.training.stores.protocol import HostParts


@dataclass(frozen=True)
class TablesAsked:
    """How a run's tables are built, as far as a system says so.

    run: with what the system decided. module: the table module that it wants, as a run names one; None for that of the
    run. told: what was decided, and why. parts: what tables so built refuse (run/parts.py).
    """

    run: "Run"
    module: Any = None
    told: tuple[SystemTold, ...] = ()
    parts: "tuple[Part, ...]" = ()


class Building:
    """How a run with a system is read, and how its data and model are built."""

    def wrong(self, run: "Run") -> Iterable[str | None]:
        """What is wrong with a run as it is written, a sentence each."""
        return ()

    def check(self, run: "Run", *, launched: bool) -> None:
        """Raise where something is missing that a run needs. launched: whether a launcher started this process."""

    def watchers(self, run: "Run") -> Sequence[Any]:
        """Watchers that a run has by it, as a run names them."""
        return ()

    def table_parts(self, model: "RunModel") -> Sequence["Part"]:
        """The parts of a run's model that build tables."""
        return ()

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The parts of a run's data."""
        return ()

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """The parts of a run that hold rows."""
        return ()

    def layer_parts(self, run: "Run", *, undecided: bool = False) -> Sequence["Part"]:
        """The parts of a run that train dense layers. undecided: also those that `auto` may switch on."""
        return ()

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The parts that a run has under a plan."""
        return ()

    def source(self, run: "Run", dataset: "Dataset") -> "BatchSource | None":
        """Where batches of a dataset come from; None for epoch after epoch."""
        return None

    def batches_of_a_step(self, run: "Run") -> int:
        """Batches that a step takes together, at most."""
        return 1

    def deal(self, run: "Run") -> "Deal | None":
        """By what work the samples of a step are dealt to ranks (data/dealing.py); None: as they are stored."""
        return None

    def tables(self, run: "Run", source: "BatchSource") -> TablesAsked:
        """How tables are built, for the data of a source."""
        return TablesAsked(run)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """The table module of pooled tables, as a run names one, where a model's settings ask for it; else None."""
        return None

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """The module of tables whose rows are not pooled, where a model's settings ask for another than TorchRec's."""
        return None

    def sizes(self, model: "RunModel", of_data: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Rows of the tables of features, where a model's settings say them. of_data: ids by the data."""
        return of_data

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Raise where a model cannot be trained so."""

    def trains_layers(self, run: "Run") -> bool:
        """Whether the run's step trains dense layers itself, in place of their optimizer."""
        return False

    def tables_rest(self, run: "Run") -> bool:
        """Whether tables learn nothing."""
        return False

    def kernel_facts(self, run: "Run", plan: Plan) -> Mapping[str, Any]:
        """What the kernels of the run's row store are told beside its settings."""
        return {}

    def worded_plan(self, run: "Run", plan: Plan, device: str) -> tuple[Plan, Mapping[str, Any]] | None:
        """(the plan in the words of TorchRec, constraints by table), where tables are kept in another way."""
        return None

    def host_parts(self, task: "nn.Module", plan: Plan, device: "torch.device", codecs: Any) -> "HostParts | None":
        """What the ranks of a host have that others do not (HostParts of stores/protocol.py); None for nothing."""
        return None
