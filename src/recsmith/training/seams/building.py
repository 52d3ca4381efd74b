"""What a system contributes while a run is read and built: checks, parts, data and the model's tables.

Without torch, except behind TYPE_CHECKING.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsmith.plans import Plan
from recsmith.training.seams.predicting import SystemLine

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
    """How a system wants the tables of a run to be built.

    run: the run with what the system decided. module: the table module that it wants, as a run names one; None: the
    run's. lines: what was decided, and why. parts: parts of the tables so built, for refusals (run/parts.py).
    """

    run: "Run"
    module: Any = None
    lines: tuple[SystemLine, ...] = ()
    parts: "tuple[Part, ...]" = ()


class Building:
    """How a run with a system is read, and how its data and model are built."""

    def wrong(self, run: "Run") -> Iterable[str | None]:
        """What is wrong with a run as written, one sentence each."""
        return ()

    def check(self, run: "Run", *, launched: bool) -> None:
        """Raise if something that a run requires is missing. launched: whether a launcher started this process."""

    def watchers(self, run: "Run") -> Sequence[Any]:
        """Watchers that it adds to a run, as a run names them."""
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
        """The source of batches from a dataset; None: epoch after epoch."""
        return None

    def batches_of_a_step(self, run: "Run") -> int:
        """The largest number of batches that a step processes together."""
        return 1

    def deal(self, run: "Run") -> "Deal | None":
        """The work by which samples of a step are distributed over ranks (data/dealing.py); None: in stored order."""
        return None

    def tables(self, run: "Run", source: "BatchSource") -> TablesAsked:
        """How tables are built for the data of a source."""
        return TablesAsked(run)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """The table module for pooled tables, as a run names one, if a model's settings ask for it; otherwise None."""
        return None

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """The module of tables that are not pooled, if a model's settings ask for one other than TorchRec's."""
        return None

    def sizes(self, model: "RunModel", of_data: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Rows of each feature's table, if a model's settings give them. of_data: number of ids by the data."""
        return of_data

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Raise if a model cannot be trained with the system."""

    def trains_layers(self, run: "Run") -> bool:
        """Whether the run's step trains dense layers itself, instead of their optimizer."""
        return False

    def tables_rest(self, run: "Run") -> bool:
        """Whether tables are not trained."""
        return False

    def kernel_facts(self, run: "Run", plan: Plan) -> Mapping[str, Any]:
        """Facts that the kernels of the run's row store receive in addition to its settings."""
        return {}

    def worded_plan(self, run: "Run", plan: Plan, device: str) -> tuple[Plan, Mapping[str, Any]] | None:
        """(the plan in TorchRec's terms, constraints by table), if tables are stored differently; otherwise None."""
        return None

    def host_parts(self, task: "nn.Module", plan: Plan, device: "torch.device", codecs: Any) -> "HostParts | None":
        """Model parts that only the ranks of one host have (HostParts of stores/protocol.py); None for nothing."""
        return None
