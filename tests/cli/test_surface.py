"""The words of the command line are frozen: a new one is a decision, a lost one a break."""

from collections.abc import Callable
from typing import Any

import click
import pytest
from support.systems import has_command

from recsmith.cli.app import COMMANDS, app

PROBLEM = {
    "--cluster -c",
    "--hbm",
    "--reserve",
    "--batch-size",
    "--group-size",
    "--steps-per-sync",
    "--inter-host-allreduce",
    "--fully-sharded",
    "--optimizer",
    "--types",
    "--widths",
    "--kernels",
    "--cache-factors",
    "--cache-policy",
    "--memory",
    "--constraints",
    "--keep-exact",
    "--pin",
    "--pin-tables",
}
SEARCH = {"--planner", "--cost-model", "--iterations", "--time-limit", "--seed"}
WORDS = {
    "watch": {
        "target",
        "--follow",
        "--until",
        "--ids",
        "--workload",
        "--periods",
        "--column",
        "--detector",
        "--set",
        "--threshold",
        "--force",
        "--format",
    },
    "plan": {
        "workload",
        *PROBLEM,
        *SEARCH,
        *("--stash", "--activations", "--dense-time"),
        "--objective",
        "--step",
        "--machine",
        "--prove",
        "--certificate",
        "--what-if",
        "--towers",
        "--tower-groups",
        "--trained",
        "-o --output",
        "--force",
        "-v --verbose",
        "--format",
    },
    "check": {"certificate", "--format"},
    "fleet": {"jobs", "--pools", "--planner", "--cost-model", "--time-limit", "--format"},
    "launch": {
        "run",
        "--for",
        "--nodes",
        "--hosts",
        "--per-node",
        "--cpu",
        "--name",
        "--time",
        "--grace",
        "--restarts",
        "--memory",
        "--cpus",
        "--image",
        "--volume",
        "--queue",
        "--scheduler",
        "--set",
        "-o --output",
        "--force",
    },
    "advise": {
        "job",
        "-c --cluster",
        "--hbm",
        "--reserve",
        "--batch-size",
        "--running",
        "--step-time",
        "--capture",
        "--objective",
        "--price",
        "--step-under",
        "--budget",
        "--try",
        "--set",
        *(SEARCH - {"--planner"}),
        "--format",
    },
    "simulate": {"plan", "--cost-model", "--format"},
    "serve": {
        "files",
        "--memory",
        "--read-only",
        "--host",
        "--port",
        "--allow-network",
        "--open --no-open",
        "--batch-size",
    },
    "compare": {"workload", *PROBLEM, "--planners", "--judges", "--baseline", *(SEARCH - {"--planner"}), "--format"},
    "sweep": {
        "workload",
        *("--stash", "--activations", "--dense-time"),
        "--devices",
        "--device",
        "--fewest-nodes",
        "--step-time",
        "--per-host",
        "--global-batch",
        *(PROBLEM - {"--cluster -c"}),
        *SEARCH,
        "-o --output",
        "--force",
        "--format",
    },
    "compress": {
        "workload",
        "--target",
        "--method",
        "--tables",
        "--above-rows",
        "--operation",
        "--data",
        "--run",
        "--tune",
        "--relearn",
        "--methods",
        "--factors",
        "--seeds",
        "--cluster",
        *SEARCH,
        "-o --output",
        "--force",
    },
    "replan": {
        "old",
        *("--workload", "--cluster -c", "--batch-size", "--hbm", "--reserve", "--optimizer", "--constraints"),
        *("--max-moved", "--curve", "--steps-left", "--link"),
        *SEARCH,
        "-o --output",
        "--force",
        "--format",
    },
    "explain": {"plan", "--table", "--memory", "--run", "--cost-model", "--format"},
    "report": {"plan", "--against", "--advice", "--capacity", "-o --output", "--force"},
    "import": {
        "running",
        "--workload",
        *("--cluster -c", "--batch-size", "--hbm", "--reserve", "--optimizer", "--memory"),
        *("--group-size", "--steps-per-sync", "--inter-host-allreduce", "--fully-sharded"),
        "--cost-model",
        "-o --output",
        "--force",
        "--format",
    },
    "verify": {
        "plans",
        "--hardware",
        "--cost-model",
        "--visits",
        "--seed",
        "--torchrec",
        "--steps",
        "--batch-size",
        "--format",
    },
    "diff": {"before", "after", "--format"},
    "data": set(),
    "reshard": {"checkpoint", "--from", "--to", "-o --output", "--init", "--seed", "--strict", "--format"},
    "workload": set(),
    "schema": {"noun"},
    "measure": set(),
    "learn": set(),
    "bench": set(),
    "train": {"run", "--set", "--dry-run", "--max-restarts", "--hosts", "--join", "--capture", "--format"},
    "feed": set(),
    "delta": set(),
    "capture": {"command_", "-o --output", "--steps", "--skip", "--plain", "--force"},
    "predict": {
        *("model", "--plan", "--ranks", "--batch", "--machine", "--calibrate", "--cost-model", "--what-if"),
        *("--cluster", "--optimizer", "--towers", "--link", "--servers", "--timeline", "--format"),
    },
    "init": {"data", "-o --output", "--label", "--force"},
    "export": {"folder", "--for", "--tables", "-o --output"},
    "evaluate": {"folder", "--data", "--ranks", "--group", "--at", "--pr-auc", "--format"},
    "search": {
        *("run", "--set", "--under", "--price", "--cluster -c", "--widths", "--rows", "--tables"),
        *("--layers", "--skip", "--coefficient", "--retrain", "--dry-run"),
        *(SEARCH - {"--planner"}),
        "-o --output",
        "--format",
    },
    "refit": {
        *("run", "--data", "--layers", "--method", "--damping", "--samples", "--test", "-o --output", "--force"),
        "--format",
    },
    "sparse": {
        *("run", "--share", "--data", "--steps", "--masks", "--per-layer", "--samples", "--test", "-o --output"),
        *("--force", "--format"),
    },
    "devices": {"--format"},
    "planners": {"--format"},
    "doctor": set(),
    "help": {"words"},
    "completion": {"shell"},
}


BENCH = {
    name: {"--hardware", "--cost-model", "--rows", "--tasks", "--planners", "--visits", "--seed", "--budget",
           "--plan-only", "-o --output", "--format"}
    for name in ("sharding", "learned")
} | {
    "train": {"bench", "-o --output", "--format"},
    "online": {"run", "--set", "--arms", "--seeds", "--first", "-o --output", "--format"},
}  # fmt: skip

WORDS = {name: words for name, words in WORDS.items() if has_command(name)}
BENCH = {name: words for name, words in BENCH.items() if has_command(name)}


def command(name: str) -> click.Command:
    found = app.get_command(click.Context(app), name)
    assert found is not None
    return found


def test_the_commands_are_frozen():
    assert sorted(COMMANDS) == sorted(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_a_command_are_frozen(name: str):
    found = {" ".join((*parameter.opts, *parameter.secondary_opts)) for parameter in command(name).params}
    assert found == WORDS[name]


def test_the_words_of_benchmarks_are_frozen():
    group = command("bench")
    assert isinstance(group, click.Group)
    context = click.Context(group)
    each_command = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    found = {name: {" ".join(each.opts) for each in one.params} for name, one in each_command if one is not None}
    assert found == BENCH


def test_the_words_of_feeds_are_frozen():
    group = command("feed")
    assert isinstance(group, click.Group)
    found = {name: {" ".join(each.opts) for each in one.params} for name, one in group.commands.items()}
    assert found == {"status": {"run", "--watch", "--format"}}


def test_the_words_of_deltas_are_frozen():
    group = command("delta")
    assert isinstance(group, click.Group)
    found = {name: {" ".join(each.opts) for each in one.params} for name, one in group.commands.items()}
    made = {"-o --output", "--force"}
    assert found == {"make": {"old", "new", *made, "--format"}, "apply": {"model", "deltas", *made}}


def test_the_defaults_are_frozen():
    found = {
        each.opts[-1]: each.default for each in command("plan").params if each.to_info_dict()["default"] is not None
    }
    assert found == {
        "--widths": "any",
        "--memory": "real",
        "--planner": "auto",
        "--objective": "cost",
        "--seed": 0,
        "--format": "table",
        "--keep-exact": False,
        "--inter-host-allreduce": False,
        "--fully-sharded": False,
        "--prove": False,
        "--force": False,
        "--verbose": False,
    }


def test_help_shows_the_defaults(run: Callable[..., Any]):
    assert " ".join(run("plan", "--help").out.split()).count("[default: ") == 6


@pytest.mark.parametrize("name", WORDS)
def test_a_command_is_named_helped_and_listed_alike(name: str):
    found = command(name)
    assert found.name == name
    assert found.help
    assert COMMANDS[name][1].endswith(".")
    for parameter in found.params:
        assert not isinstance(parameter, click.Option) or parameter.help


@pytest.mark.parametrize("name", WORDS)
def test_examples_of_the_help_use_known_words(name: str):
    for line in (command(name).help or "").splitlines():
        words = line.split()
        if words[:1] == ["recsmith"]:
            assert words[1] == name
            words = words[: words.index("--")] if "--" in words else words  # behind it stands another command
            known = {each for opts in WORDS[name] for each in opts.split()}
            assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("words", [["--help"], ["-h"], *([name, "--help"] for name in WORDS)])
def test_help_goes_to_stdout_and_ends_with_0(run: Callable[..., Any], words: list[str]):
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: recsmith")


def test_the_version_is_the_packages(run: Callable[..., Any]):
    import recsmith

    assert run("--version").out == f"recsmith, version {recsmith.__version__}\n"


@pytest.mark.parametrize(
    "words", [["paln"], ["--plan"], ["plan"], ["plan", "dlrm-v2"], ["plan", "a", "b", "-c", "h100"], ["schema", "x"]]
)
def test_wrong_words_end_with_2_and_one_line_that_says_where_to_look(run: Callable[..., Any], words: list[str]):
    done = run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("recsmith: ")
    command = f"recsmith {words[0]}" if words[0] in COMMANDS else "recsmith"
    assert done.err.endswith(f"ee {command} --help\n")


def test_no_words_end_with_2_and_the_help(run: Callable[..., Any]):
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "Usage: recsmith" in done.err
