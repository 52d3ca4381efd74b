"""Certificates: files with the proof of a plan's bound, which an independent program can check.

The proof is a tree (proofs.py). analyses/checking.py recomputes what it proves.
"""

import hashlib

from recsmith._types import Source, noun
from recsmith.errors import CorruptFile
from recsmith.files import (
    check_schema,
    decode,
    dump_json,
    encode,
    read_json,
    source_text,
    starts_with_schema,
    write_text,
)
from recsmith.plans.files import plan_from_raw, plan_to_raw
from recsmith.plans.plan import Plan
from recsmith.plans.proofs import ProofTree

SCHEMA = "recsmith/certificate/1"
CERTIFICATE_FILE = starts_with_schema(SCHEMA)  # what `--certificate` may overwrite: files that begin with this schema


@noun
class Certificate:
    """A plan, with the proof that no plan of its space takes fewer seconds under its cost model."""

    plan: Plan
    tree: ProofTree


def save_certificate(certificate: Certificate, target: Source) -> None:
    """Write a certificate file, completely or not at all."""
    tree = certificate.tree
    raw = {"schema": SCHEMA, "digest": _digest(tree), "plan": plan_to_raw(certificate.plan), "tree": encode(tree)}
    write_text(source_text(target, "a certificate"), dump_json(raw))


def load_certificate(source: Source) -> Certificate:
    """The certificate in a file ('-' is stdin); its proof is not checked here.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: the file is not a certificate, or was changed after it was written.
    """
    named = source_text(source, "a certificate")
    raw = read_json(named)
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{named}' holds no certificate; write one with `recsmith plan ... --certificate FILE`")
    body = check_schema(raw, SCHEMA, named)  # pyright: ignore[reportUnknownArgumentType]
    missing = next((key for key in ("plan", "tree", "digest") if key not in body), None)
    if missing is not None:
        raise CorruptFile(f"'{named}' is a certificate without `{missing}`; write it anew")
    tree = decode(ProofTree, body["tree"], named)
    if body["digest"] != _digest(tree):
        raise CorruptFile(f"'{named}' was changed after it was written: its digest is of another proof; write it anew")
    plan = plan_from_raw(body["plan"], named)  # pyright: ignore[reportArgumentType]
    return Certificate(plan=plan, tree=tree)


def _digest(tree: ProofTree) -> str:
    return hashlib.sha256(dump_json({"tree": encode(tree)}).encode()).hexdigest()
