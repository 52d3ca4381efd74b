"""What a run that trains several models in one job refuses; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.run import Run
from recsmith.training.run.parts import BF16_PRODUCTS, Messages, OwnStep, checkpoint_parts, not_as_plain
from recsmith.training.run.refusals import data_parts, model_parts, trained_by
from recsmith.training.seams.capabilities import (
    ALONE,
    ANYTHING,
    LOSS,
    OF_ONE_MODEL,
    ONE_RATE,
    ONE_TABLE,
    USUAL_START,
    Capabilities,
    Part,
)

PIPELINES = ("auto", "base", "sparse_dist", "prefetch_sparse_dist")


@dataclass(frozen=True)
class TrainedTogether:
    """Training several models in one job, as a part of a run."""

    needs: ClassVar[Capabilities] = (OF_ONE_MODEL - {LOSS}) | {ALONE, ONE_RATE, ONE_TABLE, USUAL_START}
    cures: ClassVar[Mapping[str, str]] = {ANYTHING: "leave it out, or write array.together: never"}
    label: str = "array"

    def refuses(self, other: Any, /) -> str | None:
        """Why this part refuses a codec of messages that would scale the columns of several models together."""
        if isinstance(other, Messages):
            return not_as_plain(
                other.comms, "array", "comms ask for int8, whose scale is of a sample's vectors of all members; use "
                "fp16 or bf16, or write array.together: never",
            )  # fmt: skip
        return None


def array_parts(run: Run) -> list[Part]:
    """The parts of a run that trains several models in one job, each once."""
    step = run.step_named[0]
    found = [
        TrainedTogether(), *data_parts(run), *model_parts(run.model, tables=run.model.tables),
        *trained_by(run, undecided=True),
        *([OwnStep(step)] if step not in PIPELINES else []),
        *([BF16_PRODUCTS] if run.model.precision == "bf16" else []),
        *checkpoint_parts(run),
    ]  # fmt: skip
    return list(dict.fromkeys(found))
