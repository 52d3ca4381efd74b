"""A server of rpc that echoes: python echo_server.py PLACE, until it is killed."""

import json
import sys
import threading

from recsmith.training.remote.calls import ServerFunctions, ServerPlace
from recsmith.training.remote.on_rpc import RpcServer, server_store

place = ServerPlace(**json.loads(sys.argv[1]))
kept = server_store(place.address)
server = RpcServer(
    place, ServerFunctions(0, place.key, {"echo": lambda _, tensors: tensors, "fail": lambda *_: {}["row 7"]})
)
threading.Event().wait()
