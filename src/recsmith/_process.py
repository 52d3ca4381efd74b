"""Memory and age of this process: what glibc keeps of freed memory, what Linux and cgroups report and limit."""

import ctypes
import gc
import os
import platform
import time
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # options of mallopt(3)
KEPT_BYTES = 2**30  # largest freed block that glibc keeps, and the most free memory it keeps at the end of the heap
NO_LIMIT = 2**60  # bytes; cgroups of version 1 report a limit above this if there is none
RETURNED_BYTES = 65_536  # larger blocks are returned to the system at once


def keep_freed_memory() -> None:
    """Have glibc keep freed memory; otherwise it maps outputs over 32 MiB anew each time, with a fault on every page.

    Nothing changes before glibc 2.35, whose threshold cannot be raised this far, or with C libraries without mallopt.
    """
    _mallopt({M_MMAP_THRESHOLD: KEPT_BYTES, M_TRIM_THRESHOLD: KEPT_BYTES})


def return_freed_memory() -> None:
    """Have glibc return freed blocks to the system at once, so that resident memory equals allocated memory."""
    _mallopt({M_MMAP_THRESHOLD: RETURNED_BYTES, M_TRIM_THRESHOLD: RETURNED_BYTES, M_ARENA_MAX: 1})


def age_s() -> float:
    """Seconds since this process was started, as Linux reports; on other systems the CPU seconds it has used."""
    try:
        started = int((Path("/proc/self/stat")).read_text().rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()


def settle() -> None:
    """Collect garbage, and return free memory to the system."""
    gc.collect()
    give_back_freed()


def give_back_freed() -> None:
    """Have glibc return the freed memory that it holds now; memory freed later is handled as before."""
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def proc_bytes(file: str, field: str) -> int:
    """Bytes that a file of /proc states in kB."""
    lines = (Path("/proc") / file).read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def memory_limit(proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process may use, by its memory cgroup (version 1 or 2) and its parents; None without a limit."""
    return min((limit for limit, _ in _limited(proc, root)), default=None)


def memory_held(proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of all processes under that limit that count against it and that only ending a process would free.

    Pages of files are not counted, because Linux drops them if memory is short. Without a limit, the bytes of this
    process.
    """
    held, limited = proc_bytes("self/status", "RssAnon"), _limited(proc, root)
    for line in _lines(min(limited)[1] / "memory.stat") if limited else ():
        name, _, number = line.partition(" ")
        held = max(held, int(number)) if name in ("total_rss", "anon") and number.isdigit() else held
    return held


def _limited(proc: Path, root: Path) -> list[tuple[int, Path]]:
    """The limits of this process's memory cgroup and of its parents, each with its folder."""
    limits: list[tuple[int, Path]] = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        elif not controllers:
            top, file = root, "memory.max"
        else:
            continue
        group = top / path.lstrip("/")
        for each in (group, *group.parents):
            found = [int(text) for text in _lines(each / file) if text.isdigit()]
            limits += [(limit, each) for limit in found if limit < NO_LIMIT]
            if each == top:
                break
    return limits


def _lines(file: Path) -> list[str]:
    """The lines of a file; none if it cannot be read."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _mallopt(options: dict[int, int]) -> None:
    if _is_glibc():
        for option, value in options.items():
            ctypes.CDLL(None).mallopt(option, value)


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
