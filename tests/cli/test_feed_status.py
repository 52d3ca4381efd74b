"""`recsmith feed status`: what ranks told, as tables and as plain data."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from feeding.support import STATUS

from recsmith.feeding import status_file
from recsmith.feeding.status import write_status


def test_the_command_shows_ranks_and_workers(tmp_path: Path, run: Callable[..., Any]) -> None:
    now = time.time()
    write_status(status_file(tmp_path, 0), replace(STATUS, written=now))
    write_status(status_file(tmp_path, 1), replace(STATUS, rank=1, written=now - 60))
    out = run("feed", "status", str(tmp_path)).out
    assert "500 of 2,000 samples of epoch 1 (25.0%)" in out
    assert "50 samples/s; the rank that waits most waits 25.0% of its time for data; 2 workers lost" in out
    assert "silent for 60 s" in out
    assert out.count("window 4") == 1  # of the rank that still tells
    raw = json.loads(run("feed", "status", str(tmp_path), "--format", "json").out)
    assert raw["schema"] == "recsmith/feed/1"
    assert [(each["rank"], each["silent"]) for each in raw["ranks"]] == [(0, False), (1, True)]
    assert raw["ranks"][0]["workers"] == [{"number": 0, "place": "here:7", "window": 4, "windows": 3, "lag_s": 0.5}]


def test_watching_ends_with_the_feed_and_imports_nothing_heavy(tmp_path: Path) -> None:
    write_status(status_file(tmp_path, 0), replace(STATUS, ranks=1, ended=True))
    words = ("feed", "status", str(tmp_path), "--watch", "--format", "json")
    program = (
        f"import sys; sys.argv[1:] = {words!r}; from recsmith.cli.app import app\ntry: app(standalone_mode=True)\n"
    )
    program += "except SystemExit: print([n for n in ('torch', 'ray') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, last = done.stdout.splitlines()
    assert json.loads(first)["ranks"][0]["ended"]
    assert last == "[]"
