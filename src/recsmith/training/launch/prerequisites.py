"""What a run requires, checked before anything starts, by `train` and by a dry run."""

import inspect
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from recsmith._components import checked, find, load, parsed
from recsmith._process import memory_limit
from recsmith.adapters.installed import require_torchrec
from recsmith.errors import UsageError
from recsmith.files import is_address, shown_address
from recsmith.files.parsing import exact_line, lines_of
from recsmith.files.settings import setting_of
from recsmith.files.writable import check_writable
from recsmith.jobs.log import require_tensorboard
from recsmith.jobs.machine import PROGRAM_BYTES
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.run import Component, Run, names_component, names_modules
from recsmith.training.seams.registry import systems, use_systems
from recsmith.units import format_size

KEYS = {each.name for each in fields(Run)}


def check_run(run: Run, ranks: int) -> None:
    """Refuse a run if something it requires is missing, or if something that it names does not exist.

    ranks: number of ranks on this machine.

    Raises:
        MissingExtra: TorchRec is not installed, or TensorBoard is not and the run asks for it.
        UsageError: the run asks for GPUs, and this machine does not have one for each of its ranks; its output cannot
            be written; a module, function or class that it names cannot be loaded, or does not take its settings.
    """
    use_systems(run)
    check_machine(run, ranks)
    check_output(run.output)
    if run.checkpoint is not None and run.checkpoint.publish is not None:
        load("recsmith.files.remote.folders:FolderStore")(run.checkpoint.publish).check()
    if run.capture is not None:
        check_writable(run.capture, "capture", "name another folder")
    if run.metrics.evaluate_every is not None and run.data.test is None:
        raise UsageError("metrics.evaluate_every is given and there is no data.test to evaluate on; name one")
    _check_named(run)
    for system in systems():
        system.check(run, launched="RANK" in os.environ)


def check_machine(run: Run, ranks: int) -> None:
    """Refuse a run if a package is not installed, or this machine lacks GPUs. ranks: ranks on this machine."""
    require_torchrec()
    if run.metrics.tensorboard:
        require_tensorboard("metrics.tensorboard")
    if run.device == "cuda":
        _check_gpus(ranks)


def check_memory_limit(run: Run, *, starts_ranks: bool) -> None:
    """Refuse a run whose processes alone need more memory than their cgroup allows, before PyTorch is imported.

    starts_ranks: whether this process starts ranks on this machine, or is a rank itself.
    """
    started = 1 + (run.ranks or 2)  # torchrun's agent, the ranks, and this process if it asks PyTorch for GPUs
    limit, processes = memory_limit(), started if starts_ranks else 1
    if limit is not None and limit < processes * PROGRAM_BYTES:
        what = "the process" if processes == 1 else f"the {processes} processes"
        raise UsageError(
            f"the memory limit of this process is {format_size(limit)}, and {what} of this job take at least "
            f"{format_size(processes * PROGRAM_BYTES)} before there is any table; raise the limit"
        )


def check_output(output: str) -> None:
    """UsageError if the run's folder cannot be created or written to. Nothing is created."""
    if is_address(output):
        raise UsageError(
            f"the run's output '{shown_address(output)}' is an address, and a job writes to a folder; give one, and "
            "the address as checkpoint.publish"
        )
    check_writable(output, "the run's output", "give another output")


@contextmanager
def own_modules(run: Run, source: object) -> Generator[None]:
    """Within this context, modules next to the run file can be imported, if the run names any. source: file or run."""
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "-"
    folder = str(Path(name).absolute().parent)
    if name == "-" or folder in sys.path or not names_modules(run):
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def lines_told(source: object, settings: Sequence[str] = ()) -> Generator[None]:
    """Within this context, an error about a field of the run also names the file and line of that field.

    source: the run's file, or the run itself. settings: 'key=value' settings, which are named instead of a line.
    """
    try:
        yield
    except UsageError as error:
        text = _with_line(str(error), source, settings)
        if text == str(error):
            raise
        raise type(error)(text) from error.__cause__


def _with_line(text: str, source: object, settings: Sequence[str]) -> str:
    field = re.match(r"'?([a-z_]+(?:[.][a-z_]+|\[[0-9]{1,9}\])*)'?(?=[ ,:])", text)
    path = re.findall(r"[a-z_]+|[0-9]+", field[1]) if field else []
    if field is None or path[0] not in KEYS or not isinstance(source, str | os.PathLike):
        return text
    file, steps = os.fspath(source), [int(each) if each.isdigit() else each for each in path]
    if (setting := setting_of(settings, field[1], text)) is not None:
        return f"{setting}: {text}"
    if exact_line(file, steps[:1]) is None:
        return text
    line = lines_of(file, [steps])[0]
    return f"'{file}': {text}" + (f" (line {line})" if line else "")


def _check_named(run: Run) -> None:
    """UsageError if a function or class that the run names cannot be loaded, or does not take its settings."""
    from recsmith.training.seams import ROWS, STEP, WATCHER

    _check_optimizers(run)
    if ":" in run.model.name:
        check_arguments(run.model.name, load(run.model.name), run.model.arguments or {})
    for number, watcher in enumerate(run.watchers):
        _check_component(WATCHER, watcher, f"watchers[{number}]", 0)
        if (check := getattr(find(WATCHER, parsed(watcher, "watchers")[0]), "check_run", None)) is not None:
            check(run)
    if run.pipeline != "auto":
        _check_component(STEP, run.pipeline, "pipeline", 1)
    if run.rows != "device":
        _check_component(ROWS, run.rows, "rows", 2)
    if names_component(run.comms):
        from recsmith.training.collectives import collectives_of

        collectives_of(run.comms)


def _check_optimizers(run: Run) -> None:
    """UsageError if an optimizer or a schedule could not be made by a job.

    PyTorch takes a second to import, so the default optimizer without arguments, which can always be made, is not
    checked.
    """
    dense, sparse = run.optimizers.dense, run.optimizers.sparse
    if dense.name != DenseOptimizer().name or dense.arguments:
        from recsmith.training.optimizers.dense import check_dense_optimizer

        check_dense_optimizer(dense)
    if dense.schedule or sparse.schedule:
        from recsmith.training.optimizers.schedules import check_schedules

        check_schedules(run.optimizers, run.steps)


def check_arguments(name: str, function: Any, arguments: dict[str, Any]) -> None:
    """UsageError if the user's model function does not take its arguments."""
    try:
        signature = inspect.signature(function)
        more = {"sequences": None} if "sequences" in [*signature.parameters][2:] else {}  # passed with unpooled tables
        signature.bind(None, 0, **{**more, **arguments})
    except TypeError as error:
        raise UsageError(f"model.arguments: {error}; see the arguments of {name}") from None
    except ValueError:  # raised for a class without a signature
        return


def _check_component(kind: str, spec: Component, where: str, given: int) -> None:
    """Check a component's class and its settings. given: number of positional arguments that its maker passes."""
    name, settings = parsed(spec, where)
    target = find(kind, name)
    if isinstance(target, type) and not hasattr(target, "__pydantic_config__"):
        right = checked(target, settings, where, given)
        if hasattr(target, "check_settings"):
            target.check_settings(**right)


def _check_gpus(ranks: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found < ranks:
        seen = f"{found} of them" if found else "none"
        built = "" if torch.version.cuda else f", and this PyTorch ({torch.__version__}) is built without CUDA"
        raise UsageError(
            f"the run asks for device cuda, {ranks} ranks on this machine need a GPU each, and PyTorch sees {seen}"
            f"{built}; start fewer ranks, or leave device out to train on CPU"
        )
