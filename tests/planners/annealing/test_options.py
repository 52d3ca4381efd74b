"""Which options annealing tries: fitting ones, few of a kind, never those whose pieces only move together."""

import numpy as np
from support.cases import BOTH, medium_case, seeded
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.annealing.options import AnnealingOptions
from recsmith.planners.annealing.tried_options import DEAREST
from recsmith.planners.search.device_state import DeviceState


def test_tried_options_fit_and_belong_to_their_table() -> None:
    for seed in range(10):
        case = medium_case(seeded(seed), models=BOTH)
        problem, relaxation = case.problem, shared_relaxation(case.evaluator)
        if not relaxation.option_fits.any():
            continue
        options = AnnealingOptions(DeviceState(case.evaluator), relaxation)
        for table, count in enumerate(options.count.tolist()):
            own = options.tried[table, :count]
            assert (problem.options.table[own] == table).all()
            assert relaxation.option_fits[own].all()
            assert not options.together[own].any()
            assert options.reached[own].all()
            seconds = relaxation.option_seconds[own]
            dear = own[seconds > DEAREST * seconds.min(initial=np.inf)]
            assert len(dear) <= 1
            assert set(np.unique(options.tried[table])) == set(own.tolist()) or count == 0


def test_neighbours_differ_in_width_only_and_point_back() -> None:
    case = lopsided()
    options, all_ = (
        AnnealingOptions(DeviceState(case.evaluator), shared_relaxation(case.evaluator)),
        case.problem.options,
    )
    linked = 0
    for option in range(len(all_.mode)):
        narrower, wider = options.near[option].tolist()
        for other in (narrower, wider):
            assert (all_.mode[other], options.pieces[other]) == (all_.mode[option], options.pieces[option])
        if wider != option:
            width = case.problem.pieces.width[all_.piece[[option, wider], 0]]
            assert width[0] <= width[1]
            assert options.near[wider, 0] == option
            linked += 1
    assert linked > 5


def test_pieces_of_an_option_are_told_apart_by_width() -> None:
    case = lopsided()
    options, all_ = (
        AnnealingOptions(DeviceState(case.evaluator), shared_relaxation(case.evaluator)),
        case.problem.options,
    )
    mixed = np.flatnonzero((all_.count > 0).all(axis=1) & options.reached)
    assert mixed.size
    assert (options.first[mixed].sum(axis=1) == all_.count[mixed, 0]).all()
    assert (options.narrow[mixed] == all_.piece[mixed, 1]).all()
    single = np.flatnonzero(all_.count[:, 1] == 0)
    assert (options.tail[options.narrow[single]] == 0).all()
    assert not options.terms[options.narrow[single]].any()
    assert options.reaches(heap(case))
