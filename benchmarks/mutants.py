"""Do the tests still notice? Small errors put into the sources one at a time, each against the tests that guard it.

    python benchmarks/mutants.py                     all mutants, against the tests of this checkout
    python benchmarks/mutants.py --only bounds       those whose name or file holds a word
    python benchmarks/mutants.py --json found.json   also write what was found, and leave out what it holds already

Each mutant is made in a temporary copy of what git tracks, so the checkout stays as it is. A mutant whose text is no
longer in its file is an error: give it the new text. docs/reliability.md holds the table of the last full run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 5400  # of the tests of one mutant; a mutant that makes them hang is noticed too
MARK = "RECSMITH_MUTANT"  # environment: tells the processes of one run, also those that outlive it


@dataclass(frozen=True)
class Mutant:
    """An error: in a file of src/recsmith, `old` (found exactly once) becomes `new`; `tests` should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


SHARDS = ("sharding",)
TORCHREC = ("costs/test_torchrec.py",)
BOUNDS = ("bounds", "planners/test_brute_force.py")
SIMULATE = ("planning/test_simulate.py",)
CONTRACT = ("planners/test_contract.py",)
PLANNERS = (*CONTRACT, "planners/test_brute_force.py")
STATES = ("planners/test_device_states.py", "planners/search", "planners/solver/test_device_states.py")
EXACT = ("planners/test_exact.py", "planners/solver")
FEASIBLE = ("planning/test_feasibility.py", "planners/search/test_placement.py")
ANNEALING = ("planners/annealing", "planners/auto", "planners/test_contract.py")
EXACTNESS = ("jobs/test_exactness.py",)
LAUNCH = ("jobs/test_launch.py",)
PROCESS = ("cli/test_process.py",)
DROPIN = ("adapters/test_drop_in_planner.py",)
FEEDS = ("feeding",)
DENSE = ("adapters/test_dense_memory.py", "adapters/test_reserve.py")

MUTANTS = (
    # --- sharding types ---
    Mutant("row blocks one row short", "sharding/base.py",
           "rows = (top, min(top + block, table.num_embeddings))",
           "rows = (top, min(top + max(block - 1, 1), table.num_embeddings))", SHARDS),
    Mutant("an empty row block is not refused", "sharding/base.py",
           "return (blocks - 1) * -(-rows // blocks) >= rows",
           "return (blocks - 1) * -(-rows // blocks) > rows", SHARDS),
    Mutant("pieces of two widths may meet on a rank", "sharding/base.py",
           "if self.span != Span.RANK or len(set(widths)) == 1:", "if self.span is not None:", SHARDS),
    Mutant("ranks of a host may come in any order", "sharding/base.py",
           "self.ranks(self.targets(ranks, cluster), cluster) != tuple(ranks):",
           "sorted(self.ranks(self.targets(ranks, cluster), cluster)) != sorted(ranks):", SHARDS),
    # --- cost model and memory of TorchRec ---
    Mutant("a sparse pipeline holds three batches of ids", "sharding/memory.py",
           "buffers = 2 * inputs", "buffers = 3 * inputs", TORCHREC),
    Mutant("row-wise state divides by one column more", "sharding/memory.py",
           "return 1 / table_dim", "return 1 / (table_dim + 1)", TORCHREC),
    Mutant("ranks beyond two hosts slow all-reduce from two on", "costs/torchrec.py",
           "twice = 2 if hosts > 2 else 1", "twice = 2 if hosts > 1 else 1", TORCHREC),
    Mutant("rows of 128 columns pay a penalty", "costs/torchrec.py", "(128, 1.15)", "(132, 1.15)", TORCHREC),
    Mutant("fp32 on the wire is four bytes for every table", "costs/torchrec.py",
           'set(workload.comm_dtypes) <= {None, "fp32"}', "set(workload.comm_dtypes) <= {None}", TORCHREC),
    Mutant("gradients travel in the forward type", "costs/torchrec.py",
           "outputs[modes] * widths * returned", "outputs[modes] * widths * sent", TORCHREC),
    Mutant("every lookup of a cache crosses the host link", "costs/torchrec.py",
           "+ (1 - hit) * link)", "+ link)", TORCHREC),
    Mutant("a weighted table costs no more backward", "costs/torchrec.py",
           "np.where(demand.weighted[table], WEIGHTED, 0.0)", "np.where(demand.weighted[table], 0.0, 0.0)", TORCHREC),
    # --- problems ---
    Mutant("the tail's bytes are counted the wrong way round", "problems/footprint.py",
           "np.add.at(device, last, tail.device - head.device)", "np.add.at(device, last, head.device - tail.device)",
           (*SIMULATE, "problems/test_footprint.py")),
    Mutant("the order of tables decides between unequal ones", "problems/problem.py",
           "return tuple(sorted(tables, key=key))", "return tuple(sorted(tables, key=lambda t: -t.weight_bytes))",
           CONTRACT),
    Mutant("names decide before anything else", "problems/problem.py",
           "return tuple(sorted(tables, key=key))", "return tuple(sorted(tables, key=lambda t: t.name))",
           CONTRACT),
    # --- bounds ---
    Mutant("the first bound is a thousandth too high", "bounds/group_branching.py",
           "limits.limit + self.costs.certain(branch.paid))",
           "1.001 * (limits.limit + self.costs.certain(branch.paid)))", BOUNDS),
    Mutant("the second bound is a thousandth too high", "bounds/tightening.py",
           "value = max(value, min(bound, enough))", "value = max(value, min(bound * 1.001, enough))", BOUNDS),
    Mutant("a rank has one step of width less than it has", "bounds/phase_nodes.py",
           "in_steps(rest[:, 1], step_s, STEPS_SAFE)", "in_steps(rest[:, 1] - step_s, step_s, STEPS_SAFE)", BOUNDS),
    Mutant("branching leaves a gap between its halves", "bounds/phase_nodes.py",
           "**{name: (middle, high)})", "**{name: (1.05 * middle, high)})", BOUNDS),
    Mutant("a group that is closed counts as paid", "bounds/groups.py",
           "(self.opening if self._any_local(paid) else 0.0)", "self.opening", BOUNDS),
    Mutant("memory lifts the bound two percent too much", "bounds/group_branching.py",
           "max(least, self._least_limit(limits, low) or least)",
           "max(least, 1.02 * (self._least_limit(limits, low) or least))", BOUNDS),
    Mutant("a piece's largest share counts once too often", "bounds/relaxation.py",
           "self.piece_alone[options.piece], 0.0).max(axis=1)",
           "self.piece_alone[options.piece], 0.0).sum(axis=1)", BOUNDS),
    # --- what devices carry ---
    Mutant("a piece may be a byte too heavy", "planners/search/device_state.py",
           "room = self.free >= tail\n", "room = self.free >= tail - 1\n", (*CONTRACT, *STATES)),
    Mutant("the first rank of a piece holds the tail", "planners/search/device_state.py",
           "self.free[last] +=", "self.free[first] +=", (*CONTRACT, *STATES)),
    Mutant("host memory is not asked for pieces of a rank", "planners/search/device_state.py",
           "np.logical_and(room, np.repeat(self.host_free >= on_last_host, self.local)) if on_last_host else room",
           "room", (*PLANNERS, *STATES)),
    Mutant("the opening of a group is paid by every piece", "planners/search/device_state.py",
           "if self.any_shared and self.in_group[group] == max(sign, 0):", "if self.any_shared:", (*CONTRACT, *STATES)),
    Mutant("trials do not ask host memory", "planners/search/trials.py",
           "fits &= room >= held[:, None]", "fits &= room >= 0", (*CONTRACT, *STATES)),
    Mutant("copies of a plan give the tail to the wrong rank", "planners/search/plan_copies.py",
           "covered.ravel(), covered[:, -1]", "covered.ravel(), covered[:, 0]", (*CONTRACT, *STATES)),
    Mutant("annealing takes what does not fit", "planners/annealing/population_annealing.py",
           "change.legal & effect.fits &", "change.legal &", ANNEALING),
    Mutant("annealing draws without its seed", "planners/annealing/population_annealing.py",
           "np.random.default_rng(seed)", "np.random.default_rng()", ANNEALING),
    Mutant("pieces of other widths may stand on one rank", "planners/search/placement.py",
           "[assignment.piece[others] != assignment.piece[i]]] = False",
           "[assignment.piece[others] != assignment.piece[i]]] = True", (*CONTRACT, *STATES)),
    # --- planners ---
    Mutant("nothing is repaired", "planners/search/placement.py",
           'for i in lost[np.argsort(-need, kind="stable")].tolist():', "for i in []:", FEASIBLE),
    Mutant("a time limit is ignored", "planners/protocol.py",
           "time.monotonic() - self.started >= limit:", "time.monotonic() - self.started >= limit + 60:", CONTRACT),
    Mutant("a start is not kept", "planners/protocol.py",
           "self._keep(start, step_seconds(evaluator, start))", "pass", CONTRACT),
    Mutant("equal plans are improvements", "planners/protocol.py",
           "if total < self.total_s:", "if total <= self.total_s:", CONTRACT),
    Mutant("nobody can cancel", "planners/protocol.py",
           "if self.cancelled:\n            self.truncated = True", "if False:\n            self.truncated = True",
           (*CONTRACT, "planners/test_protocol.py")),
    Mutant("planner random ignores its seed", "planners/greedy.py",
           "np.random.default_rng(seed).random", "np.random.default_rng().random", CONTRACT),
    Mutant("neuroshard forgets memory", "planners/neuroshard_rollouts.py",
           "fits = (self.free >= halves.bytes[pieces][:, None]) &", "fits =",
           (*CONTRACT, "planners/test_neuroshard.py", "planners/test_neuroshard_rollouts.py")),
    Mutant("auto improves nothing", "planners/auto/planner.py",
           'if self.drafts.starts and not self.stopping.reached and member() and name', "if False and name",
           ("planners/auto",)),
    Mutant("ldm leaves pieces of hosts and the world aside", "planners/ldm.py",
           "_place_shared(devices, assignment, others)\n    for", "for", (*CONTRACT, "planners/test_ldm.py")),
    # --- planner exact ---
    Mutant("sequences need not agree on a width", "planners/solver/cp_sat_variables.py",
           "variables.model.add_at_most_one(chosen[kind] for kind in kinds if kind[0] == collection)", "pass", EXACT),
    Mutant("ranks trade places though one holds tails", "planners/solver/cp_sat_variables.py",
           "tails and bool(holds_tail(rank, local))", "False", EXACT),
    Mutant("the solver has no host memory to keep", "planners/solver/cp_sat_variables.py",
           "        _fit(variables, used, room)\n", "", EXACT),
    Mutant("enumeration stops a hundredth above the best", "planners/solver/enumeration.py",
           "if bounds[i] < self.best_s * (1 - ROUNDING):", "if bounds[i] < self.best_s * 0.99:", EXACT),
    Mutant("solver and enumeration give the tail to the first rank", "sharding/coverage.py",
           "return np.where(holds_tail(rank, coverage), tail, head)",
           "return np.where(np.asarray(rank) % coverage == 0, tail, head)", (*EXACT, "sharding/test_coverage.py")),
    Mutant("enumeration takes ranks that hold tails for others", "planners/solver/enumeration.py",
           "differ = [*tails, rank_marks(self.problem)]", "differ = [rank_marks(self.problem)]", EXACT),
    # --- planning ---
    Mutant("tables that just fit are called infeasible", "planning/feasibility.py",
           "if least.bytes.sum() > room:", "if least.bytes.sum() >= room:", FEASIBLE),
    Mutant("infeasible is never said of all tables together", "planning/feasibility.py",
           "if least.bytes.sum() > room:", "if least.bytes.sum() > 2 * room:", FEASIBLE),
    Mutant("the named memory forgets the reserve", "planning/feasibility.py",
           "np.ceil((start * step + reserve) / GIB * 10)", "np.ceil(start * step / GIB * 10)", FEASIBLE),
    Mutant("the proven minimum is a fiftieth too high", "planning/feasibility.py",
           "format_size(least / world)", "format_size(1.02 * least / world)", FEASIBLE),
    Mutant("hosts are named that were not tried", "planning/feasibility.py",
           "        if has_plan(problem, model, in_time, hosts=hosts):\n", "        if hosts:\n", FEASIBLE),
    Mutant("fewer samples are tried beside the memory that more need", "planning/feasibility.py",
           "has_plan(fewer, model, in_time, reserve_bytes=None)", "has_plan(fewer, model, in_time)",
           ("problems/test_plain_reserve.py",)),
    Mutant("a plan for other samples keeps the memory of before", "planning/changed_problem.py",
           "new_cluster = estimated_anew(new_cluster, old.workload, new_workload)", "pass",
           ("problems/test_plain_reserve.py",)),
    Mutant("a plan over memory has a gap", "planning/simulate.py",
           "in_space(problem, placements) and problems.fits(wider, footprint)", "in_space(problem, placements)",
           SIMULATE),
    Mutant("simulate sums in another order", "planning/simulate.py",
           "_in_order_of(problem, wider, problems.footprint_of(wider, placements))",
           "problems.footprint_of(wider, placements)",
           SIMULATE),
    # --- files and the command ---
    Mutant("a failed write leaves half a file", "files/texts.py",
           "    if is_stream(target):\n        _write_stream(target, text)\n        return\n",
           "    _write_stream(target, text)\n    return\n", PROCESS),
    Mutant("every error ends with 1", "cli/app.py",
           "_fail(str(error), error.exit_code)", "_fail(str(error), 1)", PROCESS),
    Mutant("a reader that goes away is a failure", "cli/app.py",
           "        _drop_stdout()\n    except RecSmithError", '        _fail("pipe", 1)\n    except RecSmithError',
           PROCESS),
    Mutant("a full disk is no failure", "cli/app.py", "    sys.stdout.flush()\n", "", PROCESS),
    Mutant("an output that cannot be spelt is a traceback", "cli/app.py",
           "except UnicodeEncodeError as error:", "except ZeroDivisionError as error:", PROCESS),
    # --- jobs ---
    Mutant("shards are cut at the table's first row", "jobs/sharded_model.py",
           "return whole[corner[0] : corner[0] + shape[0],", "return whole[: shape[0],", EXACTNESS),
    Mutant("shards of columns all begin at 0", "adapters/convert.py",
           "shard_offsets=[shard.rows[0], shard.columns[0]],", "shard_offsets=[shard.rows[0], 0],", EXACTNESS),
    Mutant("the ranks of a plan are turned round", "adapters/convert.py",
           "ranks=list(placement.ranks),", "ranks=list(placement.ranks)[::-1],", EXACTNESS),
    Mutant("results come in the order of files", "jobs/launch.py",
           "for rank in range(ranks)]", "for rank in reversed(range(ranks))]", LAUNCH),
    Mutant("agents outlive their job", "jobs/launch.py",
           "    finally:\n        _end(agents)", "    finally:\n        pass", LAUNCH),
    Mutant("children outlive a parent that is killed", "jobs/agent.py",
           "_PR_SET_PDEATHSIG = 1", "_PR_SET_PDEATHSIG = 2", LAUNCH),
    Mutant("the failing rank's words are lost", "jobs/launch.py",
           "    if failed:\n", "    if False:\n", LAUNCH),
    Mutant("a job may take as long as it likes", "jobs/launch.py",
           "deadline = time.monotonic() + timeout_s", "deadline = time.monotonic() + timeout_s + 60", LAUNCH),
    Mutant("a host has a rank too few", "jobs/launch.py",
           '"--nproc-per-node", str(ranks // hosts),', '"--nproc-per-node", str(max(1, ranks // hosts - 1)),', LAUNCH),
    Mutant("codecs count as the narrowest type", "adapters/workload.py",
           "max(sorted(kinds), key", "min(sorted(kinds), key", ("adapters/test_sharders.py",)),
    Mutant("what a subclass of a sharder offers is no rule", "adapters/sharders.py",
           "return all(mine is not getattr(stock, name) for stock in STOCK)", "return False",
           ("adapters/test_sharders.py",)),
    Mutant("every rank holds all that remaps ids", "adapters/managed_collisions.py",
           "tensor.nbytes // rows * block if by_row", "tensor.nbytes if by_row",
           ("adapters/test_managed_collisions.py",)),
    Mutant("an infeasible model is another error on other ranks", "adapters/rank_0.py",
           'KINDS.get(received["error"], UsageError)', "UsageError", DROPIN),
    Mutant("a rank's own trouble is not heard", "adapters/drop_in_planner.py",
           "if trouble is not None or digest != plan.digest:", "if digest != plan.digest:", DROPIN),
    Mutant("the size of the job is not compared", "adapters/drop_in_planner.py",
           "if dist.get_world_size(group) != self.cluster.job_world_size:", "if dist.get_world_size(group) < 1:",
           DROPIN),
    Mutant("frozen layers have gradients", "adapters/dense_memory.py",
           "trained = [_bytes(tensor) for tensor in rest if tensor.requires_grad]",
           "trained = [_bytes(tensor) for tensor in rest]", DENSE),
    Mutant("what the optimizer's step takes is forgotten", "adapters/dense_memory.py",
           "max(in_backward, _step(kept, trained, on_cpu)) - batch", "in_backward - batch", DENSE),
    Mutant("a reservation that differs by rank takes the most everywhere", "adapters/reserve.py",
           "with_memory(reserve_bytes=min(taken))", "with_memory(reserve_bytes=max(taken))",
           ("adapters/test_reserve.py",)),
    Mutant("an estimate is logged but not reserved", "adapters/reserve.py",
           "return Reserve(cluster.with_memory(reserve_bytes=parts.total), text, parts)",
           "return Reserve(cluster, text, parts)", DENSE),
    Mutant("visits and ranks change places", "verifying/collectives.py",
           "seconds.transpose(2, 1, 0, 3)", "seconds.transpose(2, 0, 1, 3)",
           ("verifying/test_collectives.py",)),
    # --- feeds ---
    Mutant("parts of a step are kept again", "feeding/buffer.py", "if part.first >= self.used:", "if True:", FEEDS),
    Mutant("a worker's end is taken for a whole window", "feeding/engines.py", "    raise WorkerLost\n", "", FEEDS),
    Mutant("an ended feed tells no end", "feeding/status.py", "ended=ended, workers", "ended=False, workers", FEEDS),
    Mutant("one window too many is made ahead", "feeding/buffer.py", "count, count + 1", "count, count + 2", FEEDS),
)  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each mutant: noticed or not, by which test, and the CPU seconds that it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants whose name or file holds this")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    options = parser.parse_args(words)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name or options.only in mutant.file]
    for mutant in MUTANTS:
        _check(mutant)
    found: list[dict[str, Any]] = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    done = {each["name"] for each in found}
    with tempfile.TemporaryDirectory(prefix="recsmith-mutants-") as name:
        tree = _copy(Path(name))
        for mutant in (mutant for mutant in chosen if mutant.name not in done):
            found.append(_outcome(mutant, tree))
            print("{killed:8} {cpu_s:7.1f} s  {name}  ({by})".format(**found[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{sum(each['killed'] == 'killed' for each in found)} of {len(found)} noticed")


def _check(mutant: Mutant) -> None:
    count = (ROOT / "src/recsmith" / mutant.file).read_text().count(mutant.old)
    if count != 1:
        sys.exit(f"mutant '{mutant.name}': its text stands {count} times in {mutant.file}; give it the present text")


def _copy(folder: Path) -> Path:
    """A copy of what git tracks, and of files not yet added."""
    listed = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "src",
        "tests",
        "examples",
        "benchmarks",
        "docs",
    ]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    for name in [*filter(None, names), "pyproject.toml", "README.md"]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def _outcome(mutant: Mutant, tree: Path) -> dict[str, Any]:
    file = tree / "src/recsmith" / mutant.file
    sound = file.read_text()
    file.write_text(sound.replace(mutant.old, mutant.new))
    before = os.times()
    try:
        code, said = _tested(tree, mutant.tests)
    finally:
        file.write_text(sound)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    if code not in (0, 1, None):
        sys.exit(f"mutant '{mutant.name}': the tests did not run\n{said}")
    failed = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    by = failed[0] if failed else "they never ended" if code is None else ""
    return {"name": mutant.name, "killed": "survived" if code == 0 else "killed", "by": by, "cpu_s": round(cpu_s, 1)}


def _tested(tree: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """(exit code, or None where the tests took too long; what pytest said)."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", MARK: mark}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        return None, str(late.stdout)
    finally:
        _end_marked(mark)
    return done.returncode, done.stdout + done.stderr


def _end_marked(mark: str) -> None:
    """End what a mutant has left behind: processes of a job that ought to have ended."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            mine = f"{MARK}={mark}".encode() in file.read_bytes().split(b"\0")
        except OSError:
            continue
        if mine:
            os.kill(int(file.parent.name), signal.SIGKILL)


if __name__ == "__main__":
    main()
