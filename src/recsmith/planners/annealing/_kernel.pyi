from recsmith._types import Floats, Ints

def anneal(
    arrays: tuple[Floats | Ints, ...],
    first: int,
    last: int,
    steps: int,
    hot: float,
    cold: float,
    blunt: int,
    stages: int,
    /,
) -> None: ...
