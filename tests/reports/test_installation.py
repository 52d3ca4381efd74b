"""What people read of their installation."""

from recsmith import __version__
from recsmith.reports.catalogue import installation_lines


def test_versions_stand_in_one_column_beside_the_wanted_ones():
    own, torch, torchrec = installation_lines({"torch": "2.13.0+cpu", "torchrec": None})
    assert own.startswith(f"recsmith    {__version__}, Python 3.")
    assert torch == "torch       2.13.0+cpu (wanted: 2.13)"
    assert torchrec == "torchrec    not installed (wanted: 1.8)"
