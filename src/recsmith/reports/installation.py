"""What is installed, as lines: RecSmith itself, and PyTorch, FBGEMM and TorchRec with the releases that are wanted."""

import sys

from recsmith._version import __version__
from recsmith.adapters.installed import wanted_trio
from recsmith.reports.layout import plain_line

LABEL_WIDTH = 12  # characters: the longest module, `fbgemm_gpu`, and two spaces


def installation_lines(found: dict[str, str | None]) -> list[str]:
    """Versions by module (`trio_versions`), beside the wanted ones."""
    wanted = wanted_trio(found)
    lines = [plain_line("recsmith", f"{__version__}, Python {sys.version.split()[0]}: planning works", LABEL_WIDTH)]
    for module, number in found.items():
        lines.append(plain_line(module, f"{number or 'not installed'} (wanted: {wanted[module]})", LABEL_WIDTH))
    return lines
