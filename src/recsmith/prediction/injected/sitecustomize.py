"""Python runs this file first under `recsmith capture`: it arms a capture once PyTorch's optimizers are imported."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100 (nothing that costs time is imported here)
OPTIMIZERS = "torch.optim.optimizer"


class _Arming:
    """Finds the module of optimizers as Python would, and arms the capture after the module has been executed."""

    def find_spec(self, name, path=None, target=None):
        """The spec of OPTIMIZERS, with a loader that arms the capture; None for all other modules."""
        if name != OPTIMIZERS:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _arm(module)

        spec.loader.exec_module = exec_module
        return spec


def _arm(module):
    """Begin the capture at the first optimizer's first step: by then, torch is fully imported."""

    def first(optimizer, *_):
        handle.remove()
        from recsmith.prediction.capturing import arm

        arm(optimizer)

    handle = module.register_optimizer_step_post_hook(first)


def _run_the_next_one():
    """Run the sitecustomize that would have run without this one."""
    places = [place for place in sys.path if os.path.abspath(place or ".") != HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "RECSMITH_CAPTURE" in os.environ:
    sys.meta_path.insert(0, _Arming())
_run_the_next_one()
