"""What people read of a model that was trained."""

from support import exchanged, learned

from recsmith.costs.neural.files import NoiseFloor
from recsmith.reports.learned_models import comm_card_lines, cost_card_lines


def test_a_cost_models_card_tells_its_errors_and_the_noise():
    assert cost_card_lines(learned.card()) == [
        "device    a test (cpu)",
        "samples   90, 1 left out (docs/learning.md says why)",
        "trained   70 groups, 2 epochs, convex",
        "held out  5.0% median, 8.0% mean error of 9 groups; tau 0.970",
        "parts     10.0% forward, 7.0% backward (medians)",
        "noise     2.0% median, 3.0% mean of 2 pairs: what two samples of one case differ by",
    ]


def test_noise_without_pairs_is_unknown():
    (noise,) = (line for line in cost_card_lines(learned.card(noise=NoiseFloor(pairs=0))) if line.startswith("noise"))
    assert noise == "noise     unknown: what two samples of one case differ by"


def test_a_comm_models_card_has_a_row_for_each_number_of_ranks():
    *_, head, row = comm_card_lines(exchanged.card())
    assert head.split()[:4] == ["ranks", "exchanges", "median", "mean"]
    assert row == "    4          9    1.0%    2.0%  10.0% median, 20.0% mean"
