"""Hardware on which kernels are measured: this CPU, a GPU, or a simulated GPU. All implement `measure(case)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from recsmith.adapters.installed import INSTALL_PAIR, require_fbgemm
from recsmith.clusters import Device, load_cluster
from recsmith.errors import MissingExtra, UsageError
from recsmith.files import did_you_mean, parse_number
from recsmith.hardware.case import REPETITIONS, SCALES, Case, CaseScale, Hardware, Measurement

if TYPE_CHECKING:
    from recsmith.hardware.simulated_links import SimulatedLinks

NAMES = (
    "cpu, cuda or cuda:<gpu> such as cuda:h200, simulated:<gpu> such as simulated:h100, or simulated:h100?noise=0.03"
)


def load_hardware(name: str, scale: str | CaseScale | None = None) -> Hardware:
    """Open the hardware of this name: cpu, cuda[:<gpu>], or simulated:<gpu>[?noise=0.03].

    <gpu> is a device of the catalogue or a cluster file; cuda:<gpu> is refused if the machine's GPU is another one.
    scale: limit of its cases' size, or the name of a scale (default: cpu for cpu, gpu for the others).

    Raises:
        UsageError: the name or the scale is unknown, or there is no such device here.
        MissingExtra: PyTorch or FBGEMM is missing, or they do not fit together.
    """
    kind, _, source = name.partition(":")
    size = scale if isinstance(scale, CaseScale) else scale_of(scale or default_scale(name))
    if name in ("cpu", "cuda") or (kind == "cuda" and source):
        expected = load_cluster(source).device if source else None
        versions = require_fbgemm(cuda=kind == "cuda")
        opened: Hardware = _import("recsmith.hardware.devices", kind.title())(size, versions)
        _check_gpu(opened.device.partition(",")[0], expected)
        return opened
    if kind == "simulated" and source:
        from recsmith.hardware.simulated import Simulated

        device, _, options = source.partition("?")
        return Simulated(device, size, _noise(options))
    raise UsageError(f"no hardware is called '{name}'; there are {NAMES}")


def _check_gpu(found: str, expected: Device | None) -> None:
    if expected and not expected.is_called(found):
        raise UsageError(f"the GPU of this machine is '{found}', not {expected.name}; name it, or measure cuda")


def default_scale(name: str) -> str:
    """The name of the scale for which the hardware of this name is opened by default."""
    return "cpu" if name == "cpu" else "gpu"


def load_links(name: str) -> "SimulatedLinks":
    """The links of simulated:<gpu>[?noise=0.03], for all-to-alls of any number of ranks.

    Raises:
        UsageError: the name is unknown, or is not that of simulated hardware.
    """
    from recsmith.hardware.simulated_links import SimulatedLinks

    kind, _, source = name.partition(":")
    device, _, options = source.partition("?")
    if kind != "simulated" or not device:
        raise UsageError(f"'{name}' has no simulated links; give for example simulated:h100")
    return SimulatedLinks(device, _noise(options))


def scale_of(name: str) -> CaseScale:
    """The scale of this name; UsageError if there is none."""
    if name not in SCALES:
        raise UsageError(f"no scale is called '{name}'{did_you_mean(name, list(SCALES))}")
    return SCALES[name]


def _import(module: str, name: str) -> Any:
    """A class of a module that imports FBGEMM; MissingExtra if a library is missing or does not fit."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingExtra(f"PyTorch or FBGEMM cannot be loaded ({reason}); install a pair: {INSTALL_PAIR}") from None


def _noise(options: str) -> float:
    """The number in 'noise=0.03'; 0 if there are no options."""
    if not options:
        return 0.0
    key, _, value = options.partition("=")
    try:
        if key == "noise":
            return float(parse_number(value))
    except ValueError:
        pass
    raise UsageError(f"'?{options}' is not an option of simulated hardware; write for example ?noise=0.03")


__all__ = [
    "NAMES",
    "REPETITIONS",
    "SCALES",
    "Case",
    "CaseScale",
    "Hardware",
    "Measurement",
    "default_scale",
    "load_hardware",
    "load_links",
    "scale_of",
]
