"""What is checked before a model is trained: the output file, and that PyTorch is installed."""

from importlib import import_module
from typing import Any

from recsmith._install import TRAINING
from recsmith.costs.weight_files import SUFFIX
from recsmith.errors import MissingExtra, UsageError
from recsmith.files import check_target


def check_output(output: str) -> None:
    """Refuse an output path that is none of a .safetensors file, or that cannot be written."""
    if not output.endswith(SUFFIX):
        raise UsageError(f"the output is '{output}'; give a name that ends with {SUFFIX}")
    check_target(output)


def import_training(module: str) -> Any:
    """The module that trains; MissingExtra without PyTorch."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"training needs PyTorch: {TRAINING}") from None
