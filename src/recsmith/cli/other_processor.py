"""The notes of `recsmith plan` where a learned cost model knows another processor than this machine's."""

from recsmith.cli.progress import note

ADAPT = (
    "recsmith measure compute --hardware cpu --budget 5m -o here && "
    "recsmith learn cost --data here -o here.safetensors --start {start}"
)


def note_other_processor(cost_model: str) -> None:
    """Say so where kernels of a CPU were measured on another one, and how to adapt the model to this one."""
    from recsmith.costs.neural.files import find_model, load_model
    from recsmith.costs.neural.model import PREFIX
    from recsmith.jobs.machine import describe_cpu

    if not cost_model.startswith(PREFIX):
        return
    name = cost_model.removeprefix(PREFIX)
    card, here = load_model(find_model(name))[1], describe_cpu()
    if card.hardware != "cpu" or _processor(card.device) == _processor(here):
        return
    note(
        f"cost model {cost_model} was measured on {card.device}; this machine is {here}: where processors of the "
        "cluster are not the measured ones, steps are off by more than one factor (docs/learning.md)"
    )
    note(f"to adapt it on one of them in five minutes: {ADAPT.format(start=name)}")


def _processor(device: str) -> tuple[str, str]:
    """Name and last cache; machines of one processor differ in how many cores they give."""
    parts = device.split(", ")
    return parts[0], parts[-1]
