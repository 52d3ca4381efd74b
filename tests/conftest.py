"""Shared by all tests: where the public data lies, FBGEMM where it is installed, and ranks that start at once."""

import gc
import itertools
import logging
import os
import signal
import subprocess
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings
from support.amounts import soaking
from support.listeners import watched_listeners
from support.quick_plans import LESS, plan_quickly, search, tighten
from support.ranks import Forks
from support.stores import Store, new_bucket, s3_server

from recsmith.jobs import launch, processes

pytest.register_assert_rewrite("recsmith.testing")  # before any test file imports it
HERE = Path(__file__).parent
STARTED = os.times().elapsed
SPENT = [0.0]  # CPU seconds of this process and of what it started, when the last test ended
FORKS: list[Forks | None] = [None]
settings.register_profile("default", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=1000)  # of `make soak`: other examples every time
settings.load_profile("default")
DEAR = ("bounds", "costs", "planners", "planning", "prediction", "problems")  # rooms whose examples are whole problems
RARELY = 10_000  # objects that were made and not freed between two looks for garbage; Python's own number is 700
FEW = 12  # examples of a law there, unless it says how many; all of them in `make soak`


def _cpu_seconds(forks: Forks | None) -> float:
    """What this process has spent of all processors so far, with the processes that it waited for and forked ranks."""
    spent = os.times()
    ranks = forks.cpu_seconds() if forks else 0.0
    return spent.user + spent.system + spent.children_user + spent.children_system + ranks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in a test's last report what it took: by then nothing is patched that this needs."""
    report = yield
    if report.when == "teardown":
        now = _cpu_seconds(FORKS[0])
        report.cpu_s, SPENT[0] = now - SPENT[0], now  # pyright: ignore[reportAttributeAccessIssue]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the run took of all processors, workers and jobs that tests started included, and its rooms."""
    rooms = Counter[str]()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if hasattr(report, "cpu_s"):
            rooms[report.nodeid.partition("::")[0].split("/")[1]] += report.cpu_s
    terminalreporter.write_line(", ".join(f"{room} {spent:.0f}" for room, spent in rooms.most_common()))
    seconds = _cpu_seconds(FORKS[0])
    terminalreporter.write_line(f"{seconds:.0f} CPU seconds, {os.times().elapsed - STARTED:.0f} s by the clock")


def find_data() -> Path | None:
    """The folder of real table lists beside the checkout, if there is one."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "data"
        if folder.is_dir():
            return folder
    return None


@pytest.fixture(scope="session")
def data() -> Path:
    folder = find_data()
    if folder is None:
        pytest.skip("the folder of real table lists is absent")
    return folder


@pytest.fixture(scope="session")
def fbgemm() -> None:
    """FBGEMM imports with warnings that are not ours: import it once, quietly, where it is."""
    if find_spec("fbgemm_gpu") is None:
        pytest.skip("FBGEMM is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import recsmith.hardware.fused_hardware  # noqa: F401


@pytest.fixture(scope="session")
def torchrec() -> None:
    """TorchRec imports with warnings that are not ours and takes seconds: import it once, quietly, where it is."""
    if find_spec("torchrec") is None:
        pytest.skip("torchrec is not installed")
    logging.getLogger("torchrec").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import recsmith.torchrec  # noqa: F401


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own way with Ctrl-C, also where the tests run in the background, whose jobs a shell lets ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    left = signal.signal(signal.SIGINT, before)
    assert left is signal.default_int_handler


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The process that forks the ranks of local jobs; it starts with the first job."""
    made = FORKS[0] = Forks()
    yield made
    made.end()


TIGHT = ("bounds", "docs", "planners/test_brute_force.py", "planners/test_exact.py")  # tests that ask for tight bounds
VALID = ("costs", "problems", "testing")  # and for valid ones of all
SEARCHED = (
    "bounds",
    "docs",
    "measuring/test_planned_cases.py",
    "planners",
    "planning",
)  # and for plans that `auto` has searched for


@pytest.hookimpl(trylast=True)  # once Hypothesis knows which profile is asked for
def pytest_configure() -> None:
    """Plan quickly, also where a module does so while it is imported."""
    if not soaking():
        plan_quickly()


@pytest.fixture(scope="module", autouse=True)
def plans_as_asked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search and tighten bounds for as long as tests ask for; in `make soak` all is as users have it."""
    tight, valid, searched = (
        not soaking() and any(request.path.is_relative_to(HERE / each) for each in some)
        for some in (TIGHT, VALID, SEARCHED)
    )
    with pytest.MonkeyPatch.context() as patch:
        if tight or valid:
            tighten(1 if tight else LESS, patch.setattr)
        if searched:
            search(set_=patch.setattr)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Laws of problems that are planned or bounded draw fewer examples, where they do not say how many."""
    laws = {item.function: item.path for item in items if isinstance(item, pytest.Function)}
    for law, path in laws.items():
        drawn = is_hypothesis_test(law) and not hasattr(law, "_hypothesis_internal_settings_applied")
        if drawn and not soaking() and any(path.is_relative_to(HERE / room) for room in DEAR):
            settings(max_examples=FEW)(law)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither while tests are collected, for what is there then stays, nor often later."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.set_threshold(RARELY)
    gc.enable()
    return found


UNDER_TORCHRUN = [False]  # whether jobs of the test that runs, and of its fixtures, start as users' do


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Jobs of a test with the mark `torchrun`, and of fixtures that it is the first to ask for, run under torchrun."""
    UNDER_TORCHRUN[0] = item.get_closest_marker("torchrun") is not None


@pytest.fixture(scope="session", autouse=True)
def quick_ranks(forks: Forks) -> Iterator[None]:
    """Fork the ranks of local jobs (support/ranks.py), but for tests marked `torchrun` and restarts, and their feeds.

    It is there before fixtures of modules, whose jobs take most of a run. Whatever a job is for, its processes must
    listen on the loopback alone.
    """
    torchrun = launch._agents

    @contextmanager
    def agents(*job: Any) -> Generator[list[Any]]:
        begun = torchrun(*job) if UNDER_TORCHRUN[0] or job[3] else forks.forked(*job)
        with begun as started, watched_listeners(*(each.pid for each in started)):
            yield started

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_agents", agents)
        patch.setattr(processes, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": forks.piped}))
        yield


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """A server of S3 on this machine: its host and port."""
    with s3_server() as server:
        yield server


@pytest.fixture
def store(s3: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A bucket of the test's own, and the environment that leads to it."""
    return new_bucket(s3, monkeypatch)
