"""What a run says of the training that it begins with."""

from recsmith._types import noun
from recsmith.errors import check_rules


@noun
class StartFrom:
    """A trained run, checkpoint or model whose weights a run begins with.

    path: the output folder of a run, of which the newest checkpoint is taken; one checkpoint (`step-...`); or a model
    that was exported. optimizer: whether the state of its optimizers comes along, where the run has the same ones.
    """

    path: str
    optimizer: bool = True

    def __post_init__(self) -> None:
        check_rules(None if self.path else "start_from.path is empty; name the folder of a run")


def start_of(said: str | StartFrom) -> StartFrom:
    """The settings, also where only a path is written."""
    return StartFrom(path=said) if isinstance(said, str) else said
