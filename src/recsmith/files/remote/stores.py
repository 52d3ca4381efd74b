"""Object stores: parsing of addresses, clients, retries and their time limits, and errors.

Credentials come from the usual places of the store's clients (environment, profile, role of the machine), never from an
address. No error shows credentials: of a store's answer, only its error code is printed.
"""

import os
import random
import re
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from recsmith._install import PARQUET
from recsmith._types import record
from recsmith.errors import MissingExtra, RecSmithError, UsageError
from recsmith.files.texts import STORES, shown_address
from recsmith.units import counted

PATIENCE = "RECSMITH_STORE_PATIENCE"  # environment variable: seconds for which an operation is retried
PATIENCE_S = 120.0  # its default: by then a store has restarted, or a network has been repaired
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0  # first and longest wait between two tries; it doubles each time
CONNECT_S, SILENT_S = 10.0, 30.0  # seconds after which a connection that is not made, or is silent, is given up
TRIES = 3  # tries of one request by the store's client itself
LOOKS = 3  # reads of data that seems damaged: to the client, an answer cut off in its header is an empty one
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # environment variables with the URL of another S3 server
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"  # of Amazon's clients: whether each body is followed by a checksum
SECRET = re.compile(r"key|secret|token|signature|credential|password", re.IGNORECASE)
CODE = re.compile(r"AWS Error ([A-Z_]+(?: \(HTTP status [0-9]+\))?)|google::cloud::Status\(([A-Z_]+)|(HDFS [a-z ]+)")
STORE = re.compile(r"AWS Error|google::cloud|curl|HDFS|[Hh]adoop")  # in errors of the store, not of the data
DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|UNRECOGNIZED_CLIENT|SKEWED|AUTH|PERMISSION_DENIED"
    r"|status 40[13]"
)
ABSENT = re.compile(r"NO_SUCH_(?:BUCKET|KEY)|RESOURCE_NOT_FOUND|::Status\(NOT_FOUND|status 404")
ELSEWHERE = re.compile(r"REDIRECT|status 301|AUTHORIZATION_HEADER_MALFORMED|ILLEGAL_LOCATION")
GIVEN = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the machine a role that may",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account that may",
    "hdfs": "log in with kinit, or ask for the right in HDFS",
}
_WAITS = random.Random()  # separate, since the state of Python's generator is part of a training run
Answer = TypeVar("Answer")


class CutAnswer(ConnectionError):
    """An answer of a store that is too short, or differs from its previous answer."""


@record
class Address:
    """An address in a store: s3://bucket/key, gs://bucket/key or hdfs://host:port/path. place: the bucket or host."""

    scheme: str
    place: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}/{self.key}".rstrip("/")

    @property
    def inner(self) -> str:
        """The path as the store's client expects it."""
        return f"/{self.key}" if self.scheme == "hdfs" else f"{self.place}/{self.key}".rstrip("/")


def address_of(text: str) -> Address:
    """Parse an address.

    Raises:
        UsageError: it names no bucket, contains credentials, '.' or '..', or is of an unknown store.
    """
    scheme, _, rest = text.partition("://")
    place, _, key = rest.partition("/")
    if "@" in place or (scheme != "hdfs" and ":" in place) or ("?" in key and SECRET.search(key.partition("?")[2])):
        raise UsageError(
            f"'{shown_address(text)}' holds credentials, which would end up in logs; leave them out, and "
            f"{GIVEN.get(scheme, 'give them by the environment')}"
        )
    if scheme not in STORES or not place:
        known = ", ".join(f"{each}://" for each in STORES)
        raise UsageError(f"'{shown_address(text)}' names no bucket of a store that is known; write {known}bucket/key")
    parts = [each for each in key.split("/") if each]
    if ".." in parts or "." in parts:
        raise UsageError(f"'{text}' has '.' or '..' in it, which stores do not know; write the whole key")
    return Address(scheme=scheme, place=place, key="/".join(parts))


def client(address: Address) -> Any:
    """The pyarrow file system for an address; there is one for each store and process.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: it cannot be created, such as HDFS without Hadoop's library.
    """
    if find_spec("pyarrow") is None:
        raise MissingExtra(f"'{address}' needs pyarrow: {PARQUET}")
    bucket = address.place if address.scheme == "hdfs" or not _endpoint() else ""
    return _client(address.scheme, bucket, os.getpid(), _endpoint())


@cache
def _client(scheme: str, place: str, process: int, endpoint: str) -> Any:
    """The cached file system. process: id of this process; clients made before a fork do not work in the child."""
    del process
    fs: Any = import_module("pyarrow.fs")
    if scheme == "gs":
        from datetime import timedelta

        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=SILENT_S))
    if scheme == "hdfs":
        host, _, port = place.partition(":")
        try:
            return fs.HadoopFileSystem(host, int(port or 0))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"'hdfs://{place}' cannot be opened ({str(error).splitlines()[0]}); install Hadoop's libhdfs, and set "
                "HADOOP_HOME, JAVA_HOME and CLASSPATH"
            ) from None
    if endpoint:  # servers other than Amazon's refuse checksums after a body, or take twice as long
        os.environ.setdefault(CHECKSUMS, "when_required")
    where, _, host = endpoint.rpartition("://")
    elsewhere = {"endpoint_override": host.rstrip("/"), "scheme": where or "https"} if endpoint else {}
    return fs.S3FileSystem(
        region=_region(fs, place), connect_timeout=CONNECT_S, request_timeout=SILENT_S,
        allow_delayed_open=True,  # a small object is one request
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES), **elsewhere,
    )  # fmt: skip


def _endpoint() -> str:
    return next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")


def _region(fs: Any, bucket: str) -> str:
    """The region of a bucket: from the environment, else as Amazon's server reports it."""
    said = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if said or not bucket:
        return said or "us-east-1"
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError:  # the first request will report the reason
        return "us-east-1"


def patience_s() -> float:
    """Seconds for which an operation on a store is retried; UsageError if the environment variable is no number."""
    said = os.environ.get(PATIENCE)
    try:
        found = PATIENCE_S if said is None else float(said)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise UsageError(f"{PATIENCE} is {said!r}; it must be a number of seconds, 0 or more")
    return found


def tried(address: Address, doing: str, operation: Callable[[], Answer]) -> Answer:
    """The result of an operation on a store, retried while connections are cut off or the store is not ready.

    doing: 'read', 'write' or 'remove', for errors. An error of the data itself is raised unchanged after LOOKS tries.

    Raises:
        UsageError: the store refuses, or there is no such bucket or object.
        RecSmithError: the operation did not succeed within the time limit.
    """
    begun, wait, limit, tries = time.monotonic(), FIRST_WAIT_S, patience_s(), 0
    while True:
        tries += 1
        try:
            return operation()
        except (OSError, ValueError, _arrow_error()) as error:
            refused = refusal(address, doing, error)
            if refused is not None:
                raise refused from None
            if not _is_of_store(error) and tries >= LOOKS:
                raise
            spent = time.monotonic() - begun
            if spent + wait > limit:
                raise RecSmithError(
                    f"cannot {doing} '{address}': the connection to the store was cut off or gave no answer "
                    f"({_code(error)}), after {counted(tries, 'try', 'tries')} in {spent:.0f} s; look whether the "
                    "store is up, and start the same command again "
                    f"({PATIENCE} says for how many seconds it is tried)"
                ) from None
        time.sleep(wait * _WAITS.uniform(0.5, 1.0))
        wait = min(2 * wait, LONGEST_WAIT_S)


def refusal(address: Address, doing: str, error: BaseException) -> UsageError | None:
    """The error for a store's refusal, with advice; None for errors that a retry may solve, or that are of the data."""
    if isinstance(error, FileNotFoundError):
        return absent(address, doing)
    if isinstance(error, IsADirectoryError | NotADirectoryError):
        return UsageError(f"cannot {doing} '{address}': it is a folder; give the address of an object in it")
    text = str(error)
    if not _is_of_store(error):
        return None
    if ELSEWHERE.search(text):
        return UsageError(
            f"cannot {doing} '{address}': its bucket is in another region ({_code(error)}); set AWS_REGION to it"
        )
    if DENIED.search(text):
        found = "" if address.scheme != "s3" or _any_credentials() else ", and no credentials were found"
        return UsageError(
            f"cannot {doing} '{address}': the store refuses it ({_code(error)}){found}; {GIVEN[address.scheme]} "
            f"{doing} it"
        )
    return absent(address, doing) if ABSENT.search(text) else None


def absent(address: Address, doing: str) -> UsageError:
    """The error for an object or bucket that does not exist."""
    return UsageError(
        f"cannot {doing} '{address}': there is no such bucket or object; look at both names, and for an S3 of your own "
        f"at {ENDPOINTS[-1]}"
    )


def _any_credentials() -> bool:
    """Whether the environment or a file of this machine has credentials for S3."""
    names = ("ACCESS_KEY_ID", "PROFILE", "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI")
    kept = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", Path.home() / ".aws" / "credentials"))
    return any(os.environ.get(f"AWS_{name}") for name in names) or kept.exists()


def _is_of_store(error: BaseException) -> bool:
    return isinstance(error, ConnectionError | TimeoutError) or STORE.search(str(error)) is not None


def _code(error: BaseException) -> str:
    """The store's error code, and nothing else of its answer."""
    if isinstance(error, CutAnswer):
        return "its answers were cut short"
    found = CODE.search(str(error))
    return next(filter(None, found.groups())) if found else type(error).__name__


@cache
def _arrow_error() -> type[Exception]:
    return import_module("pyarrow").ArrowException
