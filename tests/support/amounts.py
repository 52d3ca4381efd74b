"""How many random cases a law is asked: a sample in `make test`, all of them in `make soak`."""

from hypothesis import settings


def soaking() -> bool:
    """Whether these are the tests of `make soak`."""
    return settings.get_current_profile_name() == "soak"


def some(sample: int, most: int) -> int:
    """`sample` of something, or `most` in `make soak`."""
    return most if soaking() else sample


def seeds(sample: int, most: int) -> range:
    """The first seeds: as many as `some` says."""
    return range(some(sample, most))
