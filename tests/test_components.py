"""Components by name: registered or module:Class, settings checked against what makes them, one clear error."""

from pathlib import Path
from typing import Any

import pytest

from recsmith import _components as components
from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError


@noun
class Fast:
    """A component that is a noun."""

    gain: float = 1.0


class Slow:
    """A component that is a class: what its maker hands over comes first."""

    def __init__(self, rank: int, *, steps: int, layers: tuple[int, ...] = (), word: str | None = None) -> None:
        self.all = (rank, steps, layers, word)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(components, "_REGISTERED", {})
    components.register("toy", "fast", f"{__name__}:Fast")
    components.register("toy", "slow", Slow)


def test_a_name_a_mapping_and_module_class_make_a_component():
    assert components.known("toy") == ("fast", "slow")
    assert components.make("toy", "fast") == Fast()
    assert components.make("toy", {"name": "fast", "gain": 0.5}) == Fast(gain=0.5)
    assert components.make("toy", f"{__name__}:Fast") == Fast()
    assert components.make("toy", {"name": "slow", "steps": 3, "layers": [1, 2]}, 7).all == (7, 3, (1, 2), None)


def test_what_was_made_says_its_name():
    assert components.name_of("toy", Fast) == "fast"
    assert components.name_of("toy", Slow) == "slow"
    assert components.name_of("toy", Path).endswith(":Path")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fats", "no toy is called 'fats'; did you mean 'fast'.; or give module:Class"),
        ("no_module:Fast", "'no_module:Fast' cannot be loaded: No module named 'no_module'"),
        ("math:pi", "'math:pi' is a float; name a class or function that makes a toy"),
        (3, "here is 3; give a name, module:Class, or a mapping"),
        ({"gain": 1.0}, "here has no `name`"),
        ({"name": "slow", "step": 3}, r"here\.step is no setting; did you mean 'steps'"),
        ({"name": "slow"}, r"here\.steps is missing; give it"),
        ({"name": "slow", "steps": "many"}, r"here\.steps is 'many'; it must be a whole number"),
        (
            {"name": "slow", "steps": 1, "layers": [1, "a"]},
            r"here\.layers\[1\] is 'a'; it must be a whole number",
        ),
    ],
)
def test_what_is_wrong_is_told_with_the_fix(spec: Any, message: str):
    with pytest.raises(UsageError, match=message):
        components.make("toy", spec, 0, where="here")


def test_settings_of_a_noun_are_checked_as_those_of_a_file():
    with pytest.raises(CorruptFile, match=r"^here\.gian is not a known field; did you mean 'gain'"):
        components.make("toy", {"name": "fast", "gian": 2}, where="here")


def test_one_name_is_one_component():
    components.register("toy", "slow", Slow)  # the same once more does no harm
    with pytest.raises(UsageError, match="two components of kind toy are called 'slow'"):
        components.register("toy", "slow", Fast)
