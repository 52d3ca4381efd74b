"""The engines by their names, as runs name them."""

from typing import Literal

from recsmith.feeding.engine import Engine
from recsmith.feeding.local import LocalEngine
from recsmith.feeding.settings import FeedSettings

EngineName = Literal["local", "ray"]


def engine_of(name: EngineName, settings: FeedSettings, ray_address: str | None = None) -> Engine:
    """The engine of a name, for one feed.

    Raises:
        MissingExtra: what it needs is not installed.
        RecSmithError: no Ray cluster answers at the address.
    """
    if name == "local":
        return LocalEngine(settings)
    from recsmith.feeding.on_ray import RayEngine

    return RayEngine(settings, ray_address)
