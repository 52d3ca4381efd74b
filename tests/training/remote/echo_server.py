"""A server that echoes. As a program, over rpc: python echo_server.py PLACE, until it is killed."""

import json
import os
import sys
import threading
from typing import Any

from recsmith.errors import RecSmithError
from recsmith.training.remote.calls import ServerFunctions, ServerPlace, worded


def functions(place: ServerPlace, server: int, settings: dict[str, Any]) -> ServerFunctions:
    if settings.get("wrong"):
        raise RecSmithError(f"server {server} is not to be made")
    return ServerFunctions(
        server,
        place.key,
        {
            "echo": lambda _, tensors: tensors,
            "fail": lambda *_: {}["row 7"],
            "pid": lambda *_: worded(pid=os.getpid()),
        },
    )


if __name__ == "__main__":
    from recsmith.training.remote.on_rpc import RpcServer, server_store

    place = ServerPlace(**json.loads(sys.argv[1]))
    kept = server_store(place.address)
    made = RpcServer(place, functions(place, 0, {}))
    threading.Event().wait()
