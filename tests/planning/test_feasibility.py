"""Infeasible is proved, and the changes that its message names work."""

import contextlib
import re
import signal
from dataclasses import replace
from functools import cache

import pytest
from support.cases import (
    BOTH,
    Case,
    check_plan,
    cluster,
    fits,
    impossible,
    large_case,
    medium_case,
    seeded,
    slow_memory,
    small_case,
    table,
    workload,
)

from recsmith.clusters import Cluster, Disk, load_cluster, sharding_group
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.planning import advice, feasibility, plan
from recsmith.plans import Placement, Plan, check_placements
from recsmith.problems import Space
from recsmith.units import parse_size

MIB = 2**20
GIB = 2**30
LARGE = workload(table("huge", 4_000_000, 64), table("small", 1000, 16))
MANY = workload(*(table(f"t{i}", 500_000, 32) for i in range(20)))
WHOLE = Space(types=("table_wise",))
UNITS = "B|KiB|MiB|GiB|TiB"


@cache
def _message(case: Case) -> str:
    with pytest.raises(Infeasible) as caught:
        case.plan()
    return str(caught.value)


def _first_plan(case: Case, planner: str = "auto") -> Plan:
    """The first plan that a planner finds: a better one is not asked for."""
    return case.plan(planner, on_improve=lambda _: True).plan


def _is_planned(case: Case) -> bool:
    return _first_plan(case).gap is not None


def _with_hbm(cluster: Cluster, message: str) -> Cluster:
    """The cluster with what `--hbm` of the message says."""
    found = re.search(r"--hbm (\S+?)[;.]?(?: |$)", message)
    assert found
    return cluster.with_memory(parse_size(found[1]))


def _with_devices(cluster: Cluster, message: str) -> Cluster:
    found = re.search(r"(\d+) devices \((\d+) hosts\)", message)
    assert found
    assert int(found[1]) == int(found[2]) * cluster.local_world_size
    return replace(cluster, hosts=int(found[2]))


CASES = {
    "a table larger than every device": Case(LARGE, cluster(4, hbm=300 * MIB), WHOLE),
    "a table larger than the cluster": Case(LARGE, cluster(2, hbm=300 * MIB)),
    "tables larger than the cluster": Case(MANY, cluster(4, hbm=256 * MIB)),
    "tables larger than two hosts": Case(MANY, cluster(2, 2, hbm=256 * MIB)),
    "a reserve on every device": Case(MANY, cluster(4, hbm=600 * MIB, reserve_bytes=400 * MIB)),
    "devices of different sizes": Case(MANY, cluster(4, hbm=(300 * MIB, 200 * MIB, 100 * MIB, 1))),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_named_memory_is_enough(case: Case) -> None:
    assert _is_planned(replace(case, cluster=_with_hbm(case.cluster, _message(case))))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_named_devices_are_enough(case: Case) -> None:
    message = _message(case)
    if "devices (" in message:
        assert _is_planned(replace(case, cluster=_with_devices(case.cluster, message)))
    else:
        assert case.space == WHOLE or isinstance(case.cluster.hbm_bytes, tuple)  # more devices are no help


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_below_the_proven_minimum_there_is_no_plan(case: Case) -> None:
    message = _message(case)
    found = re.search(rf"no plan exists below ([0-9.]+ (?:{UNITS})) a device", message)
    if found is None:
        assert "fits no device" in message
        return
    below = case.cluster.with_memory(int(parse_size(found[1]) * 0.999) + (case.cluster.reserve_bytes or 0))
    assert "Proved" in _message(replace(case, cluster=below))


def test_the_message_names_table_bytes_and_rule() -> None:
    message = _message(CASES["a table larger than every device"])
    assert "table 'huge' fits no device with table_wise, any column width" in message
    assert "its weights are 976.6 MiB, the largest device offers 300 MiB. Proved." in message


def test_the_named_types_are_enough() -> None:
    case = CASES["a table larger than every device"]
    found = re.search(r"--types (\S+) --widths any", _message(case))
    assert found
    wide = replace(case, space=Space(types=tuple(found[1].split(",")), widths="any"))
    assert _is_planned(wide)


@pytest.mark.parametrize("name", ["tables larger than the cluster", "tables larger than two hosts"])
def test_what_is_tried_in_short_is_enough_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As very many tables and very wide ones are tried: with few widths."""
    monkeypatch.setattr(feasibility, "MANY_OPTIONS", 0)
    case = CASES[name]
    with pytest.raises(Infeasible) as caught:
        case.plan()
    assert _is_planned(replace(case, cluster=_with_hbm(case.cluster, str(caught.value))))
    assert _is_planned(replace(case, cluster=_with_devices(case.cluster, str(caught.value))))


@pytest.mark.parametrize(
    ("count", "dim", "on"), [(2000, 128, "h100:8"), (20, 16_384, "h100:8x4")], ids=["many", "wide"]
)
def test_a_way_out_of_what_is_absurdly_large_is_found(
    count: int, dim: int, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 1 to 2 CPU seconds; it took 21 and 11 where every try split at will and cost models were asked for weights."""
    monkeypatch.setattr(advice, "CPU_S", 60.0)  # a busy machine takes more for the same tries
    tables = workload(*(table(f"t{i}", 10**8, dim, 10.0) for i in range(count)), batch_size=1024)
    message = _message(Case(tables, load_cluster(on), cost_model="analytic"))
    assert re.search(r"Checked to work: --hbm \S+GiB; or [0-9,]+ devices \([0-9,]+ hosts\)", message), message


HOSTS = cluster(4, hbm=256 * MIB, ddr_bytes_per_host=4 * 2**30)


def test_the_named_kernels_are_enough_where_hosts_have_memory() -> None:
    case = Case(MANY, HOSTS)
    found = re.search(r"--kernels (\S+)\.", _message(case))
    assert found
    assert found[1] == "fused,dense,fused_uvm_caching"
    cached = replace(case, space=Space(kernels=tuple(found[1].split(","))))
    plan = _first_plan(cached)
    check_plan(cached, plan)
    assert {placement.compute_kernel for placement in plan.placements} >= {"fused_uvm_caching"}


def test_kernels_are_not_named_where_they_do_not_help() -> None:
    thin = replace(HOSTS, device=replace(HOSTS.device, host_link_bandwidth=None))
    small = replace(HOSTS, ddr_bytes_per_host=2**20)
    cached = Space(kernels=("fused", "fused_uvm_caching"))
    cpu = replace(HOSTS, device=replace(HOSTS.device, kind="cpu"))
    for on, space in ((thin, Space()), (small, Space()), (cpu, Space()), (HOSTS.with_memory(4 * MIB), cached)):
        assert "--kernels" not in _message(Case(MANY, on, space))


@pytest.mark.parametrize(
    ("share", "planner"), [(0.9, "size_greedy"), (0.5, "cost_greedy"), (0.25, "size_greedy"), (0.25, "auto")]
)
def test_what_fits_only_behind_caches_is_planned(share: float, planner: str) -> None:
    """The tables weigh 20 * 64 MB; 5 % of them and their places a tenth of that."""
    need = sum(table.weight_bytes for table in MANY.tables)
    on = cluster(4, hbm=int(share * need / 4), ddr_bytes_per_host=2 * need)
    case = Case(MANY, on, Space(kernels=("fused", "fused_uvm_caching")), cost_model="analytic")
    check_plan(case, _first_plan(case, planner))


@pytest.mark.parametrize("blocks", [False, True])
def test_the_named_group_size_is_the_least_that_is_enough(blocks: bool) -> None:
    """The tables weigh 1.2 GiB: a group needs more than two of the 16 devices, and four do."""
    job = cluster(4, 4, hbm=512 * MIB)
    groups = {size: sharding_group(job, size, use_inter_host_allreduce=blocks) for size in (1, 2, 4)}
    for size in (1, 2):
        message = _message(Case(MANY, groups[size]))
        assert re.search(r"or --group-size 4[.;]", message)
        assert "nor in sharding groups of fewer than" in message
    assert _is_planned(Case(MANY, groups[4]))


def test_a_change_that_breaks_a_rule_is_not_named() -> None:
    """7 rows fit 2 ranks row by row, but leave one of 6 empty: more hosts are no fix, nor an error of another kind."""
    rows = workload(table("a", 7, 4, 50.0, pooling="none"), batch_size=1000)
    case = Case(rows, cluster(1, 2, hbm=1000), Space(types=("row_wise",)))
    assert "Checked to work: --hbm 0.1GiB." in _message(case)


def test_a_plan_that_only_an_untried_split_allows_is_not_called_infeasible() -> None:
    """88 columns on 11 ranks of 8 columns each: searches try 10 and 12 pieces, and only 11 fit, to the last byte."""
    eleven = Placement(
        table="a", sharding_type="column_wise", compute_kernel="fused", ranks=tuple(range(11)), widths=(8,) * 11
    )
    roomy = Case(workload(table("a", 1000, 88)), cluster(11), Space(types=("column_wise",)))
    (need,) = set(slow_memory(roomy, (eleven,))[0])
    exact = replace(roomy, cluster=cluster(11, hbm=need))
    check_placements((eleven,), exact.workload, exact.cluster)
    assert fits(exact, (eleven,))
    with contextlib.suppress(NoPlanFound):  # a search may miss it, but must not deny it
        check_plan(exact, exact.plan().plan)
    assert "Proved" in _message(replace(roomy, cluster=cluster(11, hbm=need - 1)))


SEEDS, MORE = range(40), pytest.param(range(40, 1000), marks=pytest.mark.soak)


@pytest.mark.parametrize("seeds", [SEEDS, MORE], ids=["sample", "soak"])
def test_infeasible_is_raised_exactly_where_there_is_a_proof(seeds: range) -> None:
    found: list[bool] = []
    for seed in seeds:
        for make in (small_case, medium_case, large_case)[: 3 if seed % 5 == 0 else 2]:
            case = make(seeded(seed))
            try:
                case.plan("cost_greedy")
                proved = False
            except NoPlanFound:
                proved = False
            except Infeasible:
                proved = True
            assert proved == impossible(case)
            found.append(proved)
    assert 0.1 < sum(found) / len(found) < 0.9


@pytest.mark.parametrize("seeds", [SEEDS, MORE], ids=["sample", "soak"])
def test_what_random_messages_name_works(seeds: range) -> None:
    named = {"--hbm": 0, "devices (": 0}
    for seed in seeds:
        case = small_case(seeded(seed), (0.3, 0.6, 0.9))
        try:
            case.plan("cost_greedy")
            continue
        except NoPlanFound:
            continue
        except Infeasible as error:
            message = str(error)
        for words, change in (("--hbm", _with_hbm), ("devices (", _with_devices)):
            if words in message:
                named[words] += 1
                assert _is_planned(replace(case, cluster=change(case.cluster, message)))
    assert min(named.values()) > len(seeds) / 8


def test_a_reserve_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="reserve less"):
        cluster(2, hbm=100, reserve_bytes=100)


@pytest.mark.parametrize("seed", [3307, 3677, 4145])
def test_auto_finds_a_plan_where_a_greedy_planner_alone_does(seed: int):
    case = medium_case(seeded(seed), models=BOTH)
    check_plan(case, _first_plan(case))


@pytest.mark.parametrize("seed", [4901, 5789, 7463, 11633, 16941])
def test_auto_finds_a_plan_where_sequences_need_narrow_pieces_or_luck(seed: int):
    case = medium_case(seeded(seed), models=BOTH)
    check_plan(case, _first_plan(case))


@pytest.mark.usefixtures("ctrl_c")
def test_the_proof_is_told_before_advice_which_ends_in_time_and_by_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no time for advice, and where Ctrl-C ends it, the verdict stands."""
    tables, heard = workload(table("a", 10**9, 64)), list[str]()
    monkeypatch.setattr(advice, "CPU_S", 0.0)
    with pytest.raises(Infeasible, match=r"Proved.* The search for a change that works was cut short\.$"):
        plan(tables, cluster(2, hbm=GIB), on_proof=heard.append)
    assert len(heard) == 1
    assert "Proved" in heard[0]
    assert "cut short" not in heard[0]

    def interrupted(*_: object, **__: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt did not arrive")

    monkeypatch.setattr(advice, "CPU_S", 60.0)
    monkeypatch.setattr(feasibility, "has_plan", interrupted)
    with pytest.raises(Infeasible, match=r"Proved.* The search for a change that works was cut short\.$") as caught:
        plan(tables, cluster(2, hbm=GIB))
    assert caught.value.exit_code == 3


def test_only_cache_shares_that_are_planned_are_named() -> None:
    """TorchRec has one share for tables on disk on GPUs; RecSmith's own caches on CPU have any."""
    tables = workload(table("a", 10**9, 64), optimizer="rowwise_adagrad")
    disk = {"ssd_bytes_per_host": GIB, "disk": Disk(bandwidth=1e9, reads_per_s=1e5)}
    space = Space(kernels=("fused", "dense", "key_value"))
    on_cpu = replace(load_cluster("cpu:2"), **disk).with_memory(GIB)
    for where, shares in ((cluster(2, hbm=GIB, **disk), "0.2"), (on_cpu, "0.05, 0.1, 0.2, 0.5")):
        with pytest.raises(Infeasible, match=rf"with [^;]*kernels fused, dense, key_value at {shares}[:;]"):
            plan(tables, where, space=space)
