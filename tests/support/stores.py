"""An S3 of this machine's own (moto), which refuses requests without credentials, and a line to it that can be cut."""

import random
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

KEY, SECRET = "an-id-of-nobody", "a-secret-that-must-not-show"
DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@contextmanager
def s3_server() -> Generator[str]:
    """A server of S3 on a port of the loopback interface: its host and port."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto: Any = DomainDispatcherApplication(create_backend_app)

    def asked_for_credentials(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if "HTTP_AUTHORIZATION" not in environ:
            start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(DENIED)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [DENIED]
        return moto(environ, start)

    server: Any = make_server("127.0.0.1", 0, asked_for_credentials, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class CutLine:
    """A line of TCP to a server. cut(bytes of an answer that passed) says when it breaks, slow: seconds before bytes.

    Counts what it did, so that a test can see that anything was cut.
    """

    target: tuple[str, int]
    cut: Callable[[int], bool] = lambda _: False
    slow: Callable[[], float] = lambda: 0.0
    cuts: int = 0
    slowed: int = 0
    asked: list[str] = field(default_factory=list[str])
    port: int = 0

    def serve(self, up: socket.socket) -> None:
        """One connection: requests go through, and answers until they are cut."""
        with socket.create_connection(self.target) as down:
            done = threading.Event()
            threading.Thread(target=self._requests, args=(up, down, done), daemon=True).start()
            passed = 0
            while data := _received(down):
                if wait := self.slow():
                    self.slowed += 1
                    time.sleep(wait)
                if self.cut(passed + len(data)):
                    self.cuts += 1
                    _send(up, data[: len(data) // 2])
                    break
                passed += len(data)
                if not _send(up, data):
                    break
            done.set()
            for each in (up, down):
                _shut(each)

    def _requests(self, up: socket.socket, down: socket.socket, done: threading.Event) -> None:
        while not done.is_set() and (data := _received(up)):
            if data[:5].split(b" ")[0] in (b"GET", b"PUT", b"HEAD", b"POST", b"DELET"):
                self.asked.append(data.split(b"\r\n")[0].decode("latin-1"))
            if not _send(down, data):
                break
        _shut(down)


@contextmanager
def cut_line(server: str, **how: Any) -> Generator[CutLine]:
    """A line to a server ('host:port') that is cut and slowed as told; its `port` is where to connect."""
    host, port = server.split(":")
    line = CutLine((host, int(port)), **how)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            line.serve(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A connection that is gone is what this is for."""

    with Server(("127.0.0.1", 0), Handler) as listening:
        line.port = listening.server_address[1]
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield line
        finally:
            listening.shutdown()


def now_and_then(share: float, seed: int) -> Callable[..., bool]:
    """Whether to cut, drawn: so many of the times it is asked."""
    drawn, lock = random.Random(seed), threading.Lock()

    def ask(*_: object) -> bool:
        with lock:
            return drawn.random() < share

    return ask


def one_in(number: int) -> Callable[..., bool]:
    """Whether to cut: each time that it is asked so often."""
    asked = count(1)
    return lambda *_: next(asked) % number == 0


@dataclass
class Store:
    """A bucket of its own on a server. at: 's3://bucket'."""

    server: str
    bucket: str

    @property
    def at(self) -> str:
        return f"s3://{self.bucket}"

    def client(self, *, checksums: bool = True) -> Any:
        import boto3
        from botocore.config import Config

        how: Any = {"request_checksum_calculation": "when_supported" if checksums else "when_required"}

        return boto3.client(
            "s3", endpoint_url=f"http://{self.server}", aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            region_name="us-east-1", config=Config(**how),
        )  # fmt: skip

    def put(self, key: str, data: bytes) -> str:
        self.client().put_object(Bucket=self.bucket, Key=key, Body=data)
        return f"{self.at}/{key}"

    def get(self, key: str) -> bytes:
        return self.client().get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def names(self, prefix: str = "") -> list[str]:
        found = self.client().list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", [])]


def environment(server: str) -> dict[str, str]:
    """What the user of a server sets."""
    return {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": f"http://{server}",
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "RECSMITH_STORE_PATIENCE": "20",
    }  # fmt: skip


BUCKETS = count()


def new_bucket(server: str, patch: pytest.MonkeyPatch) -> Store:
    """A new bucket, and the environment of who uses it."""
    for key, value in environment(server).items():
        patch.setenv(key, value)
    store = Store(server, f"bucket-{next(BUCKETS)}")
    store.client().create_bucket(Bucket=store.bucket)
    return store


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(2**16)
    except OSError:
        return b""


def _send(end: socket.socket, data: bytes) -> bool:
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
