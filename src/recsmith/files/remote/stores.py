"""Object stores: what an address names, the client that reads it, what is tried again and for how long.

Credentials come from where the store's own clients take them (environment, profile, role of the machine), never from an
address, and no error shows any: of what a store answers only its code is told.
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

PATIENCE = "RECSMITH_STORE_PATIENCE"  # environment: seconds for which an operation is tried again
PATIENCE_S = 120.0  # a store that restarts, or a network that is mended, is back by then
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0  # between two tries, doubled each time
CONNECT_S, SILENT_S = 10.0, 30.0  # a connection that is not made, or brings no byte, is given up
TRIES = 3  # of one request, by the store's client itself
LOOKS = 3  # at what seems to be damaged: an answer that was cut off in its head is an empty one to the client
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # where an S3 that is not Amazon's is
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"  # of Amazon's clients: whether each body is followed by one
SECRET = re.compile(r"key|secret|token|signature|credential|password", re.IGNORECASE)
CODE = re.compile(r"AWS Error ([A-Z_]+(?: \(HTTP status [0-9]+\))?)|google::cloud::Status\(([A-Z_]+)|(HDFS [a-z ]+)")
STORE = re.compile(r"AWS Error|google::cloud|curl|HDFS|[Hh]adoop")  # in an error that is of a store, not of the data
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
_WAITS = random.Random()  # of its own: that of Python is a state of training
Answer = TypeVar("Answer")


class CutAnswer(ConnectionError):
    """An answer of a store that is shorter than it must be, or unlike the one before."""


@record
class Address:
    """A place in a store: s3://bucket/key, gs://bucket/key or hdfs://host:port/path. place: the bucket, or the host."""

    scheme: str
    place: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}/{self.key}".rstrip("/")

    @property
    def inner(self) -> str:
        """The path that the store's client takes."""
        return f"/{self.key}" if self.scheme == "hdfs" else f"{self.place}/{self.key}".rstrip("/")


def address_of(text: str) -> Address:
    """What an address names.

    Raises:
        UsageError: it names no bucket, holds credentials, or is of a store that is not known.
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
    """The file system of pyarrow that reads an address, one for each store and process.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: it cannot be made, such as HDFS without Hadoop's library.
    """
    if find_spec("pyarrow") is None:
        raise MissingExtra(f"'{address}' needs pyarrow: {PARQUET}")
    bucket = address.place if address.scheme == "hdfs" or not _endpoint() else ""
    return _client(address.scheme, bucket, os.getpid(), _endpoint())


@cache
def _client(scheme: str, place: str, process: int, endpoint: str) -> Any:
    """process: clients of before a fork do not work in its child."""
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
    if endpoint:  # servers other than Amazon's refuse checksums behind a body, or take twice as long for them
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
    """The region of a bucket: as the environment says, else as Amazon does."""
    said = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if said or not bucket:
        return said or "us-east-1"
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError:  # the first request tells why
        return "us-east-1"


def patience_s() -> float:
    """Seconds for which an operation on a store is tried again; UsageError where the environment says no number."""
    said = os.environ.get(PATIENCE)
    try:
        found = PATIENCE_S if said is None else float(said)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise UsageError(f"{PATIENCE} is {said!r}; it must be a number of seconds, 0 or more")
    return found


def tried(address: Address, doing: str, operation: Callable[[], Answer]) -> Answer:
    """What an operation on a store answers, tried again while connections are cut off or the store is not ready.

    doing: 'read' or 'write', for errors. What is wrong with the data itself is raised as it is, once it was looked at
    three times.

    Raises:
        UsageError: the store refuses, or there is no such bucket or object.
        RecSmithError: it did not work until the deadline.
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
    """What a store says no to, and what to do; None of what may work when it is tried again, or is of the data."""
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
    """The error of an object, or a bucket, that is not there."""
    return UsageError(
        f"cannot {doing} '{address}': there is no such bucket or object; look at both names, and for an S3 of your own "
        f"at {ENDPOINTS[-1]}"
    )


def _any_credentials() -> bool:
    """Whether the environment or a file of this machine holds credentials of S3."""
    names = ("ACCESS_KEY_ID", "PROFILE", "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI")
    kept = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", Path.home() / ".aws" / "credentials"))
    return any(os.environ.get(f"AWS_{name}") for name in names) or kept.exists()


def _is_of_store(error: BaseException) -> bool:
    return isinstance(error, ConnectionError | TimeoutError) or STORE.search(str(error)) is not None


def _code(error: BaseException) -> str:
    """The store's word for what went wrong, and nothing else of its answer."""
    if isinstance(error, CutAnswer):
        return "its answers were cut short"
    found = CODE.search(str(error))
    return next(filter(None, found.groups())) if found else type(error).__name__


@cache
def _arrow_error() -> type[Exception]:
    return import_module("pyarrow").ArrowException
