"""Plans on two hosts, what their pieces take of each, and proofs about them that no search would make."""

from dataclasses import dataclass, replace

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import Statement
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.host_branching import HostBranching
from recsmith.bounds.host_prices import can_tell_hosts_apart
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.costs.pricing import device_sums
from recsmith.plans import Placement
from recsmith.plans.proofs import HostsProof, HostWorth, ProofPart, ProofTree, StepWorth
from recsmith.problems import Space, footprint_of
from recsmith.problems.footprint import sum_per_rank
from recsmith.sharding import Span
from support.cases import (
    Case,
    Pick,
    all_placements,
    cluster,
    make_workload,
    random_placements,
    seeded,
    slow_memory,
    under,
)

HOSTS = 2
OF_HOSTS = ("table_row_wise", "grid_shard")
TRIES = 5  # for a plan with a table that covers a host
ROUNDED = 1 + 1e-12  # times the end of a range: more than rounding


def on_two_hosts(pick: Pick) -> tuple[Case, tuple[Placement, ...]]:
    """A case on two hosts that are told apart, and a legal plan for it that no planner made."""
    work = make_workload(pick, pick((1, 2, 3, 5)), (4, 8, 20, 64))
    case = under(pick, Case(work, cluster(pick((2, 3, 4)), HOSTS, ddr_bytes_per_host=2**40)), ("analytic",))
    placements = random_placements(pick, case)
    for _ in range(TRIES):
        if any(each.sharding_type in OF_HOSTS for each in placements):
            break
        placements = random_placements(pick, case)
    return case, placements


SPACES = (
    Space(), Space(types=("table_wise", "table_row_wise")),
    Space(types=("column_wise", "table_row_wise", "grid_shard")),
    Space(types=("table_wise", "table_row_wise", "row_wise"), widths="torchrec"),
)  # fmt: skip


def two_by_two(seed: int) -> Case:
    """Up to three tables on two hosts of two devices, which all hold as much."""
    pick = seeded(seed)
    work = make_workload(pick, pick((1, 2, 3, 3)), (4, 8, 8, 12))
    roomy = Case(work, cluster(2, 2, ddr_bytes_per_host=2**40), pick(SPACES))
    need = sum(max(slow_memory(roomy, some[:1])[0]) for some in all_placements(roomy).values())
    tight = replace(roomy, cluster=replace(roomy.cluster, hbm_bytes=max(1, int(need * pick((0.6, 1.0, 50.0))))))
    return under(pick, tight, ("analytic",))


def searched(case: Case, below: float, work: int) -> HostBranching | None:
    """A search that tells hosts apart, also where it would not be begun; None where it cannot. work: twice as much."""
    evaluator = case.evaluator
    dominated = groups_dominated_by_type(evaluator)
    search = PhaseBranching(evaluator, dominated=dominated, below=below, byte_price=0.0)
    search.solve(work)
    if not search.heap or not can_tell_hosts_apart(search.prices, case.problem):
        return None
    hosts = HostBranching(search)
    hosts.solve(work)
    return hosts


@dataclass(frozen=True)
class Took:
    """What a plan takes: groups in use; of its slowest ranks in both phases; and of hosts by a mix, the less first."""

    used: Bools
    ready: float
    rest: float
    covered: tuple[float, float]

    @classmethod
    def by(cls, case: Case, placements: tuple[Placement, ...], statement: Statement, mix: Floats) -> "Took":
        """mix (G, J): of planes."""
        problem, evaluator = case.problem, case.evaluator
        found, used = footprint_of(problem, placements), np.zeros(evaluator.groups, dtype=bool)
        used[evaluator.group[found.mode]] = True
        loads = evaluator.loads(device_sums(evaluator, found))[:, :, ~statement.worldwide].sum(axis=2)
        terms = evaluator.terms(found.mode, found.width)
        planes = np.column_stack([terms @ plane.slopes[0] for plane in evaluator.planes])
        seconds = (planes * mix[evaluator.group[found.mode]]).sum(axis=1)
        own = np.where(problem.modes.span[found.mode] == Span.HOST, seconds, 0.0)
        covered = sorted(sum_per_rank(own, found, problem).reshape(HOSTS, -1)[:, 0].tolist())
        ready = max(float(loads[0].max()) - statement.opening, 0.0)
        return cls(used, ready, float(loads[1:].sum(axis=0).max(initial=0.0)), (covered[0], covered[1]))

    def plans(self, draw: np.random.Generator, total: float, tables: int) -> Plans:
        """A part that holds the plan: ranges from a point to far beyond, of which many end or begin at its seconds."""

        def around(value: float) -> tuple[float, float]:
            low, high = draw.choice([0.0, 0.5, 0.9, 1.0], 2)
            more = draw.choice([0.0, 0.0, 0.1, 1.0]) * high * total
            return value * float(low) / ROUNDED, (value + float(more)) * ROUNDED

        open_: Bools = np.ones((tables, len(self.used)), dtype=bool)
        one, other = map(around, self.covered)
        return Plans(around(self.ready), around(self.rest), open_, self.used & (draw.random() < 0.8), (one, other))


def drawn_mix(draw: np.random.Generator, statement: Statement) -> Floats:
    """One plane of each group, or of several."""
    planes = statement.ready.shape[1]
    if draw.random() < 0.5:
        return np.eye(planes)[draw.integers(planes, size=statement.evaluator.groups)]
    shares = draw.dirichlet(np.full(planes, 0.5), size=statement.evaluator.groups) * (1 - 1e-9)
    return np.asarray(shares)


def drawn_proof(draw: np.random.Generator, statement: Statement) -> HostsProof:
    """Multipliers of both hosts, of which some are alike, 0 or large, and discounts of any sign."""
    rest = statement.rest[statement.local & (statement.rest > 0)]
    step = float(rest.min()) * float(draw.choice([0.5, 1.0, 3.0])) if len(rest) else 1.0

    def worth() -> HostWorth:
        ready, later, own = (float(each) for each in draw.uniform(0, 2, 3) * draw.choice([0.0, 0.5, 1.0, 1.0, 3.0], 3))
        steps = StepWorth(seconds=step, worth=float(draw.uniform(0, 2))) if draw.random() < 0.3 else None
        return HostWorth(ready=ready, rest=later, own=own * float(draw.choice([-1.0, 1.0])), steps=steps)

    one = worth()
    planes = [None, *range(statement.ready.shape[1])]
    return HostsProof(hosts=(one, one if draw.random() < 0.3 else worth()), plane=planes[draw.integers(len(planes))])


def drawn_tree(draw: np.random.Generator, statement: Statement, tree: ProofTree, cuts: int) -> ProofTree:
    """A tree of its own, split so often by groups, phases and hosts, some leaves of which are proved together."""
    parts, leaves = list[ProofPart](), [0]
    parts.append(ProofPart(hosts=drawn_proof(draw, statement)))
    for _ in range(cuts):
        place = leaves.pop(int(draw.integers(len(leaves))))
        split = str(draw.choice(["host", "host", "group", "ready"]))
        of = int(draw.integers(HOSTS if split == "host" else statement.evaluator.groups))
        # each range is cut once at most: a second cut may lie outside of it
        if any(part.split == split != "group" and (split == "ready" or part.of == of) for part in parts):
            leaves.append(place)
            continue
        at = tree.below * float(draw.choice([0.02, 0.1, 0.2, 0.3, 0.5]))
        halves = len(parts), len(parts) + 1
        parts[place] = ProofPart(split=split, of=of, at=at, halves=halves)  # pyright: ignore[reportArgumentType]
        parts += [ProofPart(hosts=drawn_proof(draw, statement)) for _ in range(2)]
        leaves += halves
    if len(leaves) > 1 and draw.random() < 0.5:
        some = [leaf for leaf in leaves if draw.random() < 0.7]
        together = ProofPart(hosts=drawn_proof(draw, statement))
        for leaf in some:
            parts[leaf] = ProofPart(into=len(parts))
        parts += [together] if some else []
    mix = tuple(map(tuple, drawn_mix(draw, statement).tolist()))
    return replace(tree, parts=tuple(parts), apart=mix)
