"""Local processes: where they find modules, and arrays through their pipes."""

import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import recsmith
from recsmith.errors import CorruptFile
from recsmith.jobs.launch import job_environment
from recsmith.jobs.processes import decode_text, encode_text, places_of_modules, receive, send


def test_our_own_jobs_leave_the_working_folder_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    here, other = str(tmp_path), str(tmp_path / "other")
    monkeypatch.setattr(sys, "path", ["", here, str(tmp_path / "link"), other, other])
    assert places_of_modules(own=True) == [other]
    assert places_of_modules(own=False) == [here, str(tmp_path / "link"), other]
    for function, places in (("recsmith.x:y", other), ("mine:y", os.pathsep.join(places_of_modules(own=False)))):
        words = job_environment(1, own=function.startswith("recsmith."))
        assert (words["PYTHONPATH"], words["PYTHONSAFEPATH"]) == (places, "1")


def test_a_checkout_that_is_worked_in_is_still_found(monkeypatch: pytest.MonkeyPatch):
    home = Path(recsmith.__file__).parents[1]
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [str(home)])
    assert places_of_modules(own=True) == [str(home)]


def test_python_m_recsmith_imports_nothing_from_the_working_folder(tmp_path: Path):
    for name in ("click.py", "secrets.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit(7)\n")
    places = os.pathsep.join([str(Path(recsmith.__file__).parents[1]), *filter(None, sys.path)])
    command = [
        sys.executable,
        "-m",
        "recsmith",
        "plan",
        "criteo-kaggle",
        "--cluster",
        "h100:2",
        "--planner",
        "size_greedy",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


ARRAYS = st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.uint8]).flatmap(
    lambda kind: arrays(kind, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
)


@given(sent=st.dictionaries(st.text("abc", min_size=1, max_size=3), ARRAYS, max_size=3), words=st.text(max_size=5))
def test_what_is_sent_is_received(sent: dict[str, np.ndarray], words: str) -> None:
    pipe = io.BytesIO()
    send(pipe, sent)
    send(pipe, {"words": encode_text(words)})
    pipe.seek(0)
    found = receive(pipe)
    assert found is not None
    assert found.keys() == sent.keys()
    for name, value in sent.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    last = receive(pipe)
    assert last is not None
    assert decode_text(last["words"]) == words
    assert receive(pipe) is None


def test_what_breaks_off_is_the_end_and_what_is_no_message_is_refused() -> None:
    whole = io.BytesIO()
    send(whole, {"a": np.arange(5)})
    for length in (0, 3, 8, len(whole.getvalue()) - 1):
        assert receive(io.BytesIO(whole.getvalue()[:length])) is None
    with pytest.raises(CorruptFile, match="no message"):
        receive(io.BytesIO(struct.pack(">Q", 9) + b"{} {} {} "))
    with pytest.raises(CorruptFile, match="the largest have"):
        receive(io.BytesIO(b"Traceback (most recent call last):"))
