"""What is checked before a model is trained: the output file, and that PyTorch is installed."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from recsmith._install import TRAINING
from recsmith.costs.weight_files import SUFFIX, card_path, starts_with_card
from recsmith.errors import MissingExtra, UsageError
from recsmith.files import check_target, starts_with_schema


def check_output(output: str) -> None:
    """Refuse an output path that is none of a .safetensors file, or that cannot be written."""
    if not output.endswith(SUFFIX):
        raise UsageError(f"the output is '{output}'; give a name that ends with {SUFFIX}")
    check_target(output)


def check_outputs(output: str, schema: str, inputs: Sequence[str], *, force: bool) -> None:
    """Refuse an output where it, or the card beside it, would overwrite an input, or a file of another kind.

    schema: of the card. inputs: files and folders that training reads. force: whether other kinds may be overwritten.
    """
    check_output(output)
    check_target(output, inputs=inputs, kind=starts_with_card(schema), force=force)
    check_target(str(card_path(output)), inputs=inputs, kind=starts_with_schema(schema), force=force)


def import_training(module: str) -> Any:
    """The module that trains; MissingExtra without PyTorch."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"training needs PyTorch: {TRAINING}") from None
