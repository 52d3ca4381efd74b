"""Samples of a step assigned to ranks by the work of their histories: `data.balance` of a run (docs/sequences.md).

A step ends when its slowest rank does, and attention over a history grows with the square of its length. All ranks get
equally many samples, and the samples of a step stay the same, so losses are those of the run without balance.
deciding.py defines the work and decides whether that pays; recsmith.data.dealing assigns samples.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from recsmith.analyses.advice import Switch
from recsmith.data.dealing import Deal
from recsmith.training.models import SEQUENCE_MODELS
from recsmith.training.seams.capabilities import BAGS, FORMATS, ORDER, Capabilities, PlainPart
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.seams.system import System

if TYPE_CHECKING:
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part

DEALT = PlainPart("data.balance", owns=Capabilities({ORDER}), needs=Capabilities({FORMATS, BAGS}))


class Balance(System):
    """The system that balances samples over ranks by work (`data.balance`)."""

    key = "data.balance"
    settings = Deal | Literal["auto", "histories"]
    about = (
        "samples of a step are dealt to ranks by the work of their histories (docs/sequences.md): histories, auto, or "
        "a feature by whose lengths; none: as they are stored"
    )

    def wrong(self, run: "Run") -> Sequence[str | None]:
        """Refuse a model without histories, and samples that must stay together."""
        said = run.data.balance
        if said is None:
            return ()
        return (
            f"data.balance is {said}, and model {run.model.name} has no histories ({', '.join(SEQUENCE_MODELS)} have); "
            "name the feature by whose lengths samples are dealt: data.balance: {feature: ...}"
            if not isinstance(said, Deal) and run.model.name not in SEQUENCE_MODELS
            else None,
            f"data.balance deals single samples to ranks, and data.keep_together is {run.data.keep_together}; leave "
            "one of them out"
            if run.data.keep_together > 1
            else None,
        )

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The part that decides the rank of each sample."""
        return () if run.data.balance is None else (DEALT,)

    def deal(self, run: "Run") -> Deal | None:
        """How samples are balanced: by the work of the model's histories, or as the run says."""
        from recsmith.training.systems.balance.deciding import deal_of

        return None if run.data.balance is None else deal_of(run)

    def needs_step(self, run: "Run") -> bool:
        """Whether the run asks for balance."""
        return run.data.balance is not None

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide whether balance pays if the run says auto, and predict the step of the busiest rank."""
        from recsmith.training.systems.balance.deciding import decided

        return decided(made, self.key)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Work of the busiest rank over the mean, by measured seconds."""
        if job.run.data.balance is None or not (own := job.progress.own_s):
            return {}
        most = max(own) * len(own) / sum(own)
        return {self.key: f"balance: the busiest of {len(own)} ranks took {most:.2f} times the mean of its own work"}

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer balance for models of histories."""
        made = Switch(
            name="histories dealt by their work", change="data.balance: histories",
            settings=("data.balance=histories",), quality="exact", page="sequences.md",
        )  # fmt: skip
        return (made,) if run.data.balance is None and run.model.name in SEQUENCE_MODELS else ()


SYSTEM = Balance()
