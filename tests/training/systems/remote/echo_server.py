"""A server that echoes. As a program, over sockets or rpc: python echo_server.py PLACE, until it is killed."""

import json
import os
import sys
import threading
from typing import Any

from recsmith.errors import RecSmithError
from recsmith.training.systems.remote.calls import ServerFunctions, ServerPlace, worded


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
    place = ServerPlace(**json.loads(sys.argv[1]))
    if place.backend == "rpc":
        from recsmith.training.systems.remote.group import hosted_meeting
        from recsmith.training.systems.remote.on_rpc import RpcServer

        kept = hosted_meeting(place.address)
        made: Any = RpcServer(place, functions(place, 0, {}))
    else:
        from recsmith.training.systems.remote.on_sockets import SocketServer, listen

        made = SocketServer(place, functions(place, 0, {}), listen(place.address, 0))
        print("listens", flush=True)
    threading.Event().wait()
