"""Is half a checkpoint ever read from a store, is one lost, and how fast is it? The page docs/launch.md.

    python benchmarks/storage.py soak --cuts 10000     # published and brought over lines that are cut and slow
    python benchmarks/storage.py epochs --cuts 500     # Parquet data, read over such a line
    python benchmarks/storage.py rates --mib 256       # beside boto3, the client of S3's maker

The store is moto's server of S3, in a process of its own; lines to it are cut in the middle of answers, heads included,
and answer late (tests/support/stores.py). One process publishes checkpoints whose bytes follow from their step, and
threads read the newest one all the time: what comes must be the bytes of its step, and none older than was published
before it was asked for. needs: the extra `test`.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.stores import Store, cut_line, environment, s3_server

from recsmith.errors import RecSmithError
from recsmith.files.remote.folders import FolderStore, PublishedFolder

JOB, BUCKET = "a" * 16, "soak"
FILES = {"state/__0_0.distcp": 300_000, "state/__1_0.distcp": 120_000, "state/.metadata": 2_000, "progress.json": 400}
SLOW_S = 0.02  # at most, before a piece of an answer that comes late


def content(step: int, name: str) -> bytes:
    """The bytes of a file of a step."""
    seed = int.from_bytes(hashlib.sha256(f"{step} {name}".encode()).digest()[:8], "little")
    return np.random.default_rng(seed).bytes(FILES[name])


class Soak:
    """A writer and readers at one address, and what they saw."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder, self.published, self.over = address, folder, 0, False
        self.counts = Counter[str]()

    def write(self) -> None:
        """Publish one step after the other."""
        store = FolderStore(self.address)
        while not self.over:
            step, made = self.published + 1, self.folder / "made"
            for name in FILES:
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_bytes(content(step, name))
            name, attempt = f"step-{step:08d}", f"step-{step:08d}.{JOB}.{step}"
            try:
                files = store.upload(made, [made / each for each in FILES], attempt)
                store.publish(PublishedFolder(name=name, attempt=attempt, files=tuple(files)), 2, JOB)
            except RecSmithError as error:
                self.counts["other errors"] += 1
                print(error, flush=True)
                continue
            self.published = step
            self.counts["published"] += 1

    def read(self, reader: int) -> None:
        """Bring the newest one, again and again."""
        store = FolderStore(self.address)
        while not self.over:
            known = self.published
            try:
                found = list(store.folders().values())
                if not found:
                    self.counts["lost"] += known > 0
                    continue
                newest = found[-1]
                self.counts["lost"] += newest.name < f"step-{known:08d}"
                target = self.folder / f"read-{reader}-{time.monotonic_ns()}"
                store.fetch(newest, target)
            except RecSmithError as error:
                gone = "no such bucket or object" in str(error)
                self.counts["replaced while it was read" if gone else "other errors"] += 1
                if not gone:
                    print(error, flush=True)
                continue
            step = int(newest.name.partition("-")[2])
            right = all((target / name).read_bytes() == content(step, name) for name in FILES)
            self.counts["read whole" if right else "HALF READ"] += 1
            for path in sorted(target.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            target.rmdir()


def soak(server: str, options: argparse.Namespace) -> None:
    """Publish and read until so many connections were cut, and print what was seen."""
    drawn, lock = random.Random(options.seed), threading.Lock()

    def often(share: float) -> bool:
        with lock:
            return drawn.random() < share

    slow = lambda: SLOW_S * drawn.random() if often(0.05) else 0.0  # noqa: E731
    with cut_line(server, cut=lambda _: often(options.share), slow=slow) as line, tempfile.TemporaryDirectory() as name:
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{line.port}"
        run = Soak(f"s3://{BUCKET}/jobs/a", Path(name))
        threads = [threading.Thread(target=run.write)]
        threads += [threading.Thread(target=run.read, args=(reader,)) for reader in range(options.readers)]
        begun = told = time.monotonic()
        for each in threads:
            each.start()
        while line.cuts < options.cuts and time.monotonic() - begun < options.seconds:
            time.sleep(0.2)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"# {line.cuts:,} cuts, {line.slowed:,} slow pieces, {dict(run.counts)}", flush=True)
        run.over = True
        for each in threads:
            each.join()
        rows = {"connections cut": line.cuts, "pieces that came late": line.slowed, **run.counts,
                "HALF READ": run.counts["HALF READ"], "lost": run.counts["lost"]}  # fmt: skip
        print(f"| {options.readers} readers, {time.monotonic() - begun:.0f} s | |\n|---|---|")
        for what, count in rows.items():
            print(f"| {what} | {count:,} |")


def epochs(server: str, options: argparse.Namespace) -> None:
    """Read Parquet data epoch after epoch until so many connections were cut; every sample must be as it is here."""
    from recsmith.data import GeneratedFeature, GeneratorSpec, open_dataset
    from recsmith.data.converting import FileLayout, convert_dataset

    spec = GeneratorSpec(num_samples=40_000, dense=2, features=(GeneratedFeature(name="a", num_embeddings=5000),))
    drawn, right, wrong = random.Random(options.seed), 0, 0
    with cut_line(server, cut=lambda _: drawn.random() < options.share) as line, tempfile.TemporaryDirectory() as name:
        folder, store = Path(name) / "data", Store(server, BUCKET)
        convert_dataset(open_dataset(spec), folder, FileLayout(group_samples=4000, file_samples=12_000))
        for path in folder.glob("*.parquet"):
            store.put(f"data/{path.name}", path.read_bytes())
        wanted = epoch_digest(open_dataset(folder))
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{line.port}"
        begun = time.monotonic()
        while line.cuts < options.cuts and time.monotonic() - begun < options.seconds:
            same = epoch_digest(open_dataset(f"s3://{BUCKET}/data")) == wanted
            right, wrong = right + same, wrong + (not same)
        print(f"{line.cuts:,} connections cut in {right + wrong} epochs of 40,000 samples: {wrong} with other samples")


def epoch_digest(dataset: Any) -> str:
    """A digest of all samples of an epoch, in order."""
    held = hashlib.sha256()
    for batch in dataset.batches(rank=0, world_size=1, batch_size=1024, seed=1):
        for array in (batch.sample_ids, batch.labels, batch.dense, batch.ids["a"].values):
            held.update(array.tobytes())
    return held.hexdigest()


def rates(server: str, options: argparse.Namespace) -> None:
    """Bytes a second of a file that is put and brought, beside boto3's, by turns."""
    store, size = Store(server, BUCKET), options.mib * 2**20
    boto3, plain, seconds = store.client(), store.client(checksums=False), dict[str, list[float]]()

    def timed(what: str, act: Any) -> None:
        begun = time.perf_counter()
        act()
        seconds.setdefault(what, []).append(time.perf_counter() - begun)

    indexes: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder, there = Path(name) / "made", FolderStore(f"s3://{BUCKET}/rates")
        folder.mkdir()
        file = folder / "weights"
        file.write_bytes(np.random.default_rng(0).bytes(size))
        for turn in range(options.turns):
            step, target = f"step-{turn:08d}", Path(name) / f"brought-{turn}"
            attempt = f"{step}.{JOB}.{turn}"

            def put(attempt: str = attempt, step: str = step) -> None:
                begun = time.perf_counter()
                files = there.upload(folder, [file], attempt)
                middle = time.perf_counter()
                there.publish(PublishedFolder(name=step, attempt=attempt, files=tuple(files)), 1, JOB)
                seconds.setdefault("objects alone, published", []).append(middle - begun)
                indexes.append(time.perf_counter() - middle)

            timed("put, published", put)
            timed("put, boto3", lambda: boto3.upload_file(str(file), BUCKET, "rates-boto3"))
            timed("put, plain", lambda: plain.upload_file(str(file), BUCKET, "rates-boto3"))
            wanted = there.folders()[step]
            timed("brought, published", lambda wanted=wanted, target=target: there.fetch(wanted, target))
            timed("brought, boto3", lambda: boto3.download_file(BUCKET, "rates-boto3", f"{name}/boto3"))
            timed("brought, plain", lambda: plain.download_file(BUCKET, "rates-boto3", f"{name}/boto3"))
            assert (target / "weights").read_bytes() == file.read_bytes()
            (target / "weights").unlink()
    print(f"| {options.mib} MiB, median of {options.turns} by turns | RecSmith | boto3 | boto3 without checksums |")
    print("|---|---|---|---|")
    for who in ("boto3", "plain"):
        seconds[f"objects alone, {who}"] = seconds[f"put, {who}"]
    for what in ("put", "objects alone", "brought"):
        of = {who: size / statistics.median(seconds[f"{what}, {who}"]) / 1e6 for who in ("published", "boto3", "plain")}
        told = (f"{of[who]:,.0f} MB/s, ratio {of['published'] / of[who]:.2f}" for who in ("boto3", "plain"))
        print(f"| {what} | {of['published']:,.0f} MB/s | {' | '.join(told)} |")
    print(f"the index and what goes with it take {statistics.median(indexes):.2f} s, whatever the size")


def serve(found: Any) -> None:
    """The server, until this process is ended."""
    with s3_server() as server:
        found.put(server)
        threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Soak a store with cut connections, or time it beside boto3.")
    parser.add_argument("what", choices=("soak", "epochs", "rates"))
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05, help="of pieces of answers at which a connection is cut")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at the longest")
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    server = context.Process(target=serve, args=(found,), daemon=True)
    server.start()
    try:
        where = found.get(timeout=60)
        os.environ.update(environment(where) | {"RECSMITH_STORE_PATIENCE": "120"})
        Store(where, BUCKET).client().create_bucket(Bucket=BUCKET)
        {"soak": soak, "epochs": epochs, "rates": rates}[options.what](where, options)
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
