"""What fits an empty cluster, against sums over the bytes of shards."""

import pytest
from hypothesis import given
from support.cases import BOTH, Case, cluster, drawn, fits, medium_case, table, workload

from recsmith.plans import Cache, Placement
from recsmith.problems import Space
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, sharding_type

TINY = drawn(medium_case, tightness=(0.5, 1.0, 3.0), models=BOTH, counts=(1, 2, 3), dims=(4, 8, 20, 64))


@given(TINY)
def test_a_piece_fits_alone_where_some_target_has_room(case: Case) -> None:
    problem = case.problem
    found = problem.fits_alone(problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
    for piece, mode in enumerate(problem.pieces.mode):
        t = problem.tables[problem.modes.table[mode]]
        kind, kernel = TYPE_NAMES[problem.modes.type[mode]], KERNEL_NAMES[problem.modes.kernel[mode]]
        factor = float(problem.modes.load_factor[mode])
        cache = Cache(load_factor=factor) if factor else None
        assert found[piece] == _has_room(case, t, kind, kernel, cache, int(problem.pieces.width[piece]))


def _has_room(case: Case, t, kind: str, kernel: str, cache: Cache | None, width: int) -> bool:
    target_count = (case.cluster.world_size, case.cluster.hosts, 1)[sharding_type(kind).span]
    for target in range(target_count):
        ranks = sharding_type(kind).ranks((target,), case.cluster)
        alone = Placement(
            table=t.name, sharding_type=kind, compute_kernel=kernel, ranks=ranks, widths=(width,), cache=cache
        )
        if fits(case, (alone,)):
            return True
    return False


@pytest.mark.parametrize(("host_rows", "fits_"), [(4, False), (5, False), (6, True)])
def test_a_piece_of_the_world_fits_only_where_its_fullest_host_has_room(host_rows: int, fits_: bool) -> None:
    """10 rows in 4 blocks are 3 + 3 on the first host and 3 + 1 on the last."""
    case = Case(
        workload(table("a", 10, 8, 0.0), optimizer="sgd"),
        cluster(2, 2, ddr_bytes_per_host=host_rows * 8 * 4),
        Space(types=("row_wise",), kernels=("fused_uvm",)),
    )
    pieces = case.problem.pieces
    assert case.problem.fits_alone(pieces.mode, pieces.head, pieces.tail).tolist() == [fits_]
