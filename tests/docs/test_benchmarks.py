"""The scripts of benchmarks/: each is told in its README, with the pages that it serves, and these show it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
ROWS = [line.split("|") for line in README.splitlines() if line.startswith("| `")]


def test_every_script_is_told_and_every_told_one_is_there():
    there = {path.name for path in (ROOT / "benchmarks").rglob("*") if path.suffix in (".py", ".sh")}
    told = set(re.findall(r"[\w]+\.(?:py|sh)\b", README))
    assert told == there


def test_every_page_of_a_row_shows_one_of_its_scripts():
    for _, scripts, pages, *_ in ROWS:
        names = re.findall(r"[\w*]+(?:\.\w+|/)", scripts)
        for page in re.findall(r"`([\w./-]+\.md)`", pages):
            text = (ROOT / page).read_text("utf-8")
            targets = re.findall(r"`make (\w+)`", pages)
            assert any(name.replace("*", "").split(".")[0] in text for name in (*names, *targets)), f"{page}: {names}"


# --- what pages show of them runs ---------------------------------------------------------------------------------

SHIPPED = ("--data", "shipped:cpu")
SMALL: dict[str, tuple[str, ...]] = {
    "affected": ("--since", "HEAD"),
    "analytic_figures": (),
    "annealing_speed": ("4", "h100:2"),
    "comm_network": ("--data", "shipped:comm-2", "--model", "comm-cpu"),
    "array_memory": ("peaks", "--quick"),
    "capacity": ("sketches", "--quick"),
    "fetch_rates": ("--batches", "4", "--shapes", "1"),
    "compress": ("MOVIES", "-o", "measured", "--plain", "--seeds", "1", "--factors", "6,32", "--split", "valid"),
    "compress_planted": ("--quick", "--seeds", "2", "--items", "60", "--samples", "2000"),
    "public_gpu": ("--points",),
    "public_gpu_fits": ("collectives",),
    "optimizers": ("overhead", "--quick"),
    "pinned_plans": ("--count", "20", "--jobs", "1"),
    "certificates": ("soak", "--problems", "3", "--damaged", "3"),
    "constraints": ("--count", "2", "--planners", "exact"),
    "data": ("--samples", "2000"),
    "datasets": ("--quick",),
    "disturbed_samples": (*SHIPPED, "--thresholds", "1.5", "--epochs", "1"),
    "fleet": ("--jobs", "2", "--seeds", "1"),
    "feed": ("stalls", "--quick", "--steps", "40"),
    "fuzz": ("--files", "2", "--only", "cluster"),
    "kills": ("--kills", "2", "--only", "convert"),
    "hand_written_loop": ("--pairs", "1", "--steps", "3", "--ranks", "1"),
    "identical_plans": ("record", "plans.json", "--only", "criteo"),
    "delete_systems": ("towers",),
    "deltas": ("--rows", "2000", "--columns", "4"),
    "dedup": ("--small", "--steps", "3"),
    "import_graph": ("--sizes",),
    "launches": ("--count", "1"),
    "memory_phases": ("brute", "--problems", "3"),
    "learned_policies": ("updates", "--seeds", "1", "--tasks", "2", "--iterations", "1", "--folder", "policies"),
    "learned_splits": ("shares", "--rows", "2x20", "--tasks", "1"),
    "split_trainings": ("parts", "--rows", "2x20", "--tasks", "1", "--small"),
    "learned_variants": ("--variants", "dims", "--tasks", "2", "--iterations", "1"),
    "learning": (*SHIPPED, "--epochs", "1"),
    "loads": ("bounds", "--problems", "10"),
    "measuring": ("--budget", "1s"),
    "replan_greedy": ("--count", "1"),
    "lost_host": ("--plans", "10"),
    "mutants": ("--only", "no mutant is called so"),
    "narrow": ("rates", "--quick"),
    "online": ("drift", "--small", "-o", "online"),
    "optimality": ("tasks", "--count", "1"),
    "balance": ("work",),
    "advise": ("table", "--rows", str(ROOT / "samples" / "cpu-advice" / "rows.jsonl.xz")),
    "auto_choices": ("tell", "--jobs", "narrow-2"),
    "hstu_formulas": (),
    "planned_under": ("neural:simulated-h100", "--hardware", "simulated:h100", "--count", "1"),
    "bf16_products": ("--quick",),
    "dedup_reading": ("--quick",),
    "precision": ("bytes", "--quick"),
    "predict_regret": ("measure", "regret", "--ranks", "2", "--quick"),
    "reading_rates": ("--quick",),
    "recd": ("--sessions", "2", "--samples", "2048", "--steps", "2", "--rounds", "1"),
    "remote_echo": ("--quick",),
    "remote_lines": (),
    "reshard_memory": ("--mib", "64"),
    "rounding": ("--quick",),
    "scratch_annealing": ("--seconds", "1", "--tasks", "1"),
    "search": ("prices", "--quick"),
    "second_order": ("logistic", "--quick", "-o", "logistic.json"),
    "sequences": ("fit", str(ROOT / "samples" / "cpu-sequences" / "rows.jsonl.xz")),
    "serve": ("start",),
    "served_tables": ("--data", "MOVIES", "--columns", "8", "--epochs", "1"),
    "shared_caches": ("neural:simulated-h100", "--count", "5"),
    "shown_commands": ("docs/compare.md",),
    "storage": ("rates", "--mib", "1", "--turns", "1"),
    "tasks": ("towers", "--data", "MOVIES", "--users", "20", "--seeds", "1", "--epochs", "1", "--batch", "32"),
    "thresholding": ("cost", "--quick"),
    "torchrec_planning": ("--tables", "20", "--ranks", "4"),
    "train_exactness": ("--quick", "--jobs", "1", "--types", "column_wise"),
    "tiers_hits": ("--only", "Zipf 1.3", "--steps", "60"),
    "tiers_kills": ("--each", "1", "--only", "flush"),
    "tiers_plans": ("small", "--count", "2"),
    "train_kills": ("--kills", "1"),
    "train_memory": ("--quick", "-o", "memory"),
    "transfer": (*SHIPPED, "--start", "cpu", "--epochs", "1"),
    "watching_columns": ("calm", "--seeds", "1", "--steps", "24"),
    "watching_series": ("--seeds", "1"),
    "watching": ("ids", "--batches", "2000", "--features", "1"),
    "verification": ("--visits", "3"),
    "vocabulary": ("--values", "20000"),
}  # fmt: skip
MODES: dict[str, tuple[str, ...]] = {  # that pages show beside
    "array_memory paper": ("--quick",),
    "compress_planted --independent": ("--quick", "--seeds", "2", "--items", "60", "--samples", "2000"),
    "data --ranks": ("--samples", "2000"),
    "data --zipf": ("--samples", "2000"),
    "learned_policies rewards": ("--seeds", "1", "--tasks", "2", "--iterations", "1", "--folder", "policies"),
    "learned_policies seeds": ("--seeds", "1", "--tasks", "2", "--iterations", "1", "--folder", "policies"),
    "learned_policies transfer": ("--rows", "2x20", "--tasks", "2", "--iterations", "1", "--folder", "policies"),
    "learned_policies updates": (
        "--planner", "autoshard", "--seeds", "1", "--tasks", "2", "--iterations", "1", "--folder", "policies"),
    "learned_splits lost": ("--rows", "2x20", "--tasks", "1"),
    "learned_splits drafts": ("--rows", "2x20", "--tasks", "1"),
    "narrow auc": ("--quick", "--data", "MOVIES", "-o", "narrow.json"),
    "narrow drift": ("--quick", "-o", "narrow.json"),
    "narrow sparse": ("--quick", "-o", "narrow.json"),
    "narrow steps": ("--quick",),
    "online logistic": ("-o", "online"),
    "online movielens": ("--small", "-o", "online", "--data", "MOVIES"),
    "online table": ("-o", "online"),
    "optimality families": ("--families", "few-giants", "--count", "1", "--limits", "0.2"),
    "optimality brute": ("--count", "3", "--exact", "--jobs", "1"),
    "optimality random": ("--count", "5", "--first", "10000", "-o", "random.json", "--jobs", "1"),
    "optimizers losses": ("--quick", "-o", "optimizers.json"),
    "optimizers rates": ("--quick",),
    "optimizers state": ("--quick",),
    "precision auc": ("--quick", "-o", "precision.json"),
    "precision jobs": ("--quick",),
    "precision rounding": ("--quick",),
    "precision updates": ("--quick",),
    "recd --sessions": ("2", "--ids", "8", "--samples", "2048", "--steps", "2", "--rounds", "0"),
    "search planted": ("--quick",),
    "storage epochs": ("--cuts", "5"),
    "storage soak": ("--cuts", "20", "--readers", "1"),
    "second_order curve": ("--quick", "-o", "curve.json"),
    "second_order layers": ("--quick", "-o", "layers.json"),
    "second_order ranks": ("--quick",),
    "second_order refit": ("--quick", "-o", "refit.json"),
    "second_order refit_dense": ("--quick", "-o", "dense.json"),
    "second_order steps": ("--quick",),
    "second_order tune": ("--quick",),

    "split_trainings rewards": ("--rows", "2x20", "--tasks", "1", "--small"),
    "tasks labels": ("--data", "MOVIES", "--users", "20", "--seeds", "1", "--epochs", "1", "--batch", "32"),
    "serve memory": ("--plans", "2"),
}  # fmt: skip
LEFT_OUT = {
    **dict.fromkeys(("production", "replan", "table_population"), "reads a public file that is not kept here"),
    "advise_ladders": "plans tables of MLPerf six times; tests/analyses/test_table_switches.py plans few",
    "daily": "a job for each day of a stream; tests/training/systems/warm_start trains two",
    "sasrec_reference": "runs public code that is not kept here",
    "dry_run": "twelve jobs of one and two ranks on a machine on which nothing else runs",
    "tiers": "three jobs; tests/training/systems/tiers/test_tiered.py trains them small",
    "tiers_limit": "twenty kills under a limit of memory; tests/training/systems/tiers/test_tiered_memory.py has few",
    "tiers_steps": "four jobs in turns on a machine on which nothing else runs",
    "arrays": "jobs of two ranks; tests/training/systems/arrays/test_array_jobs.py trains them small",
    "remote": "jobs of three processes; tests/training/remote trains them small",
    "dynamic": "trainings of minutes; tests/training/systems/dynamic trains such tables small",
    "towers": "jobs of four ranks on two hosts; tests/training/systems/towers/test_tower_jobs.py trains them small",
    "watching_costs": "takes ten minutes of a machine on which nothing else runs",
    "watching_nab": "reads public series that are not kept here",
    **dict.fromkeys(("how_it_works_pictures", "learning_pictures", "policy_pictures"), "writes pictures of the docs"),
    **dict.fromkeys(
        ("learning_speed", "planning", "scale", "memory", "reshard_jobs"), "minutes, and has no small size"
    ),
    "row_jobs": "jobs of two and four ranks with six models each; dedup runs the same loop small",
    "variable_batches": "three jobs of two ranks; tests/adapters/test_observe.py reads such batches",
    "hosted_plans": "compares two checkouts",
    "sequences": "minutes; tests/training/models trains these models small",
    "hstu_reference": "runs the code of the authors of HSTU; tests/training/models keeps figures of it",
    **dict.fromkeys(("predict", "predict_foreign"), "captures 32 and 16 jobs; predict_regret runs the same code small"),
    "predicted_kernels": "reads the folder of `recsmith bench learned`",
    "report_pictures": "needs Chromium",
    "serve_soak": "minutes of two servers and two browsers; tests/web/serving/test_folder.py kills writers of a folder",
    "train_plans_split": "writes the plans of a run",
}
PARTS = {"advise_tables", "command_parts", "optimizer_jobs",
         "feed_data", "feed_losses", "fuzz_changes", "fuzz_files", "memory_jobs", "online_logistic",
         "optimality_cases",
         "optimality_families", "optimality_large", "optimality_published", "optimality_tasks", "optimality_whose",
         "search_data",
         "narrow_parts",
         "predict_jobs", "records", "remote_dlrm", "remote_dlrm_grpc", "remote_dlrm_rpc",
         "second_order_jobs", "thresholding_parts", "thresholding_scores", "torchrec_rows",
         "two_networks",
         "watching_jobs"}  # fmt: skip
ONLY_PARSED = """
import argparse, runpy, shlex, sys
parse = argparse.ArgumentParser.parse_args
def only(self, *args, **names):
    parse(self, *args, **names)
    raise SystemExit(0)
argparse.ArgumentParser.parse_args = only
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
for line in sys.stdin.read().splitlines():
    sys.argv = [SCRIPT, *shlex.split(line)]
    try:
        runpy.run_path(SCRIPT, run_name="__main__")
    except SystemExit as end:
        assert not end.code, line
"""


def shown() -> dict[str, set[str]]:
    """Arguments of each script that has a parser, as pages show them in blocks and in lines."""
    found: dict[str, set[str]] = {}
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        text = page.read_text("utf-8")
        blocks = "".join(re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)).replace("\\\n", " ")
        lines = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        commands = [re.sub(r"#.*|[|>&].*", "", line) for line in blocks.splitlines()]
        for command in (*commands, *(span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", lines))):
            match = re.search(r"python benchmarks/(\w+)\.py(.*)", command)
            if match and "ArgumentParser" in (ROOT / "benchmarks" / f"{match[1]}.py").read_text("utf-8"):
                found.setdefault(match[1], set()).add(re.sub(r"\[(.*?)\]", r"\1", match[2]).strip())
    return found


def test_every_script_runs_small_or_says_why_not():
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - PARTS
    assert scripts == {*SMALL, *LEFT_OUT}


@pytest.mark.soak
@pytest.mark.parametrize("command", sorted({**SMALL, **MODES}))
def test_a_script_runs_at_a_small_size(tmp_path: Path, command: str):
    pytest.importorskip("torchrec")
    movies(tmp_path / "movies")
    name, *mode = command.split()
    arguments = [str(tmp_path / "movies") if each == "MOVIES" else each for each in {**SMALL, **MODES}[command]]
    arguments = [*mode, *(str(ROOT / each) if each.startswith("docs/") else each for each in arguments)]
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments], cwd=tmp_path,
                          env=environment(), capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(shown()))
def test_scripts_know_the_options_that_pages_show(name: str):
    pytest.importorskip("torchrec")
    script = str(ROOT / "benchmarks" / f"{name}.py")
    program = ONLY_PARSED.replace("SCRIPT", repr(script))
    done = subprocess.run([sys.executable, "-c", program, script], input="\n".join(sorted(shown()[name])),
                          env=environment(), capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def environment() -> dict[str, str]:
    """That of this process, with the package that it tests first."""
    places = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}


def movies(folder: Path) -> None:
    """Ratings in the form of MovieLens, of as many movies as compress.py stores smaller."""
    folder.mkdir()
    (folder / "movies.csv").write_text("movieId,title,genres\n" + "".join(f"{m},M{m},Drama\n" for m in range(1, 901)))
    rated = (f"{1 + row % 40},{1 + row % 900},{1 + row * 7 % 5},{1000 + row}\n" for row in range(3600))
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(rated))
