"""The two backends of calls, by name; each is imported when a run wants it."""

from recsmith._components import load
from recsmith.training.remote.calls import ServerCalls, ServerPlace

CALLS = {"rpc": "recsmith.training.remote.on_rpc:RpcCalls", "ray": "recsmith.training.remote.on_ray:RayCalls"}


def connected(place: ServerPlace, name: str) -> ServerCalls:
    """Calls of a trainer of this name to the servers of a place."""
    return load(CALLS[place.backend])(place, name)
