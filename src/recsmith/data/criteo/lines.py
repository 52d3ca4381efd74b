"""Parses and writes lines of Criteo's click logs, many lines at once.

L lines of 40 fields: a label, 13 counts, 26 categories
"""

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from recsmith._types import Bools, Ints
from recsmith.data.batch import Batch, DataSchema, Singles
from recsmith.errors import UsageError
from recsmith.units import counted

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
COUNTS, CATEGORIES = 13, 26  # columns of a line, after the label
FIELDS = 1 + COUNTS + CATEGORIES
HEX_DIGITS = 8  # hexadecimal digits of a category
LONGEST_COUNT = 18  # characters of the longest count, which fits into 64 bits
PADDING = bytes(HEX_DIGITS)  # appended to the text so that a word of 8 bytes can be read at any position
SHOWN = 60  # characters of a corrupt line, or of a field, that an error shows
LABEL, COUNT, CATEGORY = rb"-?0*[01]", rb"-\d{1,17}|\d{0,18}", rb"([0-9a-f]{8})?"  # patterns of valid fields
BOM = b"\xef\xbb\xbf"
HEAD_LINES = 100  # first lines of a file, one of which must have as many fields as a click log
MAGIC = {
    b"\x1f\x8b": "gzip; name it so that it ends in .gz, such as day_0.gz",
    b"\x93NUMPY": "an array of NumPy; write it as Parquet (docs/data.md)",
    b"PAR1": "Parquet; name it so that it ends in .parquet",
    b"ARROW1": "an Arrow file; name it so that it ends in .arrow",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it, or pack it as .gz",
    b"BZh": "packed by bzip2; unpack it, or pack it as .gz",
    b"<": "a web page or XML; fetch the data again",
    b"{": "JSON; write it as Parquet (docs/data.md)",
}  # first bytes of files in other formats, and what to do with such a file
LINE = "\t".join(["%d"] * (1 + COUNTS) + ["%08x"] * CATEGORIES) + "\n"
MOST_ROWS = 2**32  # rows that a 32-bit category can distinguish
PACKING = 6  # gzip compression level, 1 to 9


@dataclass(frozen=True)
class ParsedLines:
    """labels (L,), dense (L, 13), categories (L, 26), and which lines are valid (L,); invalid lines hold zeros.

    first_corrupt: index of the first invalid line, and what is wrong with it; None if all lines are valid.
    """

    labels: Singles
    dense: Singles
    categories: Ints
    valid: Bools
    first_corrupt: tuple[int, str] | None


def parse_lines(text: bytes) -> ParsedLines:
    """The fields of all lines of a text."""
    if text and not text.endswith(b"\n"):
        text += b"\n"
    buffer = np.frombuffer(text + PADDING, np.uint8)
    body = buffer[: len(text)]
    ends = np.flatnonzero((body == ord("\t")) | (body == ord("\n")))
    is_line = body[ends] == ord("\n")
    in_line = np.diff(np.flatnonzero(is_line), prepend=-1)  # fields of each line (L,)
    complete = in_line == FIELDS
    kept = ends[np.repeat(complete, in_line)].reshape(-1, FIELDS)
    line_starts = np.append(0, ends[is_line] + 1)
    starts = np.concatenate([line_starts[:-1][complete][:, None], kept[:, :-1] + 1], axis=1)
    numbers, right_numbers = _counts(buffer, starts[:, : 1 + COUNTS], kept[:, : 1 + COUNTS])
    categories, right_categories = _categories(buffer, starts[:, 1 + COUNTS :], kept[:, 1 + COUNTS :])
    labels = numbers[:, 0]
    named = kept[:, 0] > starts[:, 0]
    right = named & ((labels == 0) | (labels == 1)) & right_numbers.all(axis=1) & right_categories.all(axis=1)
    valid = complete.copy()
    valid[complete] = right
    return ParsedLines(
        labels=_spread(labels, complete, right).astype(np.float32),
        dense=np.log1p(np.maximum(_spread(numbers[:, 1:], complete, right), 0)).astype(np.float32),
        categories=_spread(categories, complete, right),
        valid=valid,
        first_corrupt=_first_corrupt(text, line_starts, in_line, valid),
    )


def _counts(buffer: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """(whole numbers in the fields, 0 for empty fields; which fields are valid)."""
    shape, start, width = starts.shape, starts.ravel(), (ends - starts).ravel()
    negative = buffer[start] == ord("-")
    right = (width <= LONGEST_COUNT) & ~(negative & (width == 1))
    values = np.zeros(len(start), np.int64)
    for digit in range(min(int(width.max(initial=0)), LONGEST_COUNT)):
        has = np.flatnonzero((width > digit) & ~(negative & (digit == 0)))
        found = buffer[start[has] + digit] - np.uint8(ord("0"))
        right[has] &= found <= 9
        values[has] = values[has] * 10 + found
    return np.where(negative, -values, values).reshape(shape), right.reshape(shape)


def _categories(buffer: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """(numbers in the fields of 8 hexadecimal digits, 0 for empty fields; which fields are valid).

    The 8 characters are processed as one 64-bit word: digits are merged pairwise. The characters were digits if
    formatting the result gives the same characters again.
    """
    width = ends - starts
    spans = np.ndarray((len(buffer) - HEX_DIGITS + 1,), "<u8", buffer=buffer, strides=(1,))
    characters = spans[starts].astype(np.uint64).byteswap()  # the first character is the highest byte
    digits = (characters & _bytes(0x0F)) + ((characters >> np.uint64(6)) & _bytes(0x01)) * np.uint64(9)
    letters = ((digits + _bytes(6)) >> np.uint64(4)) & _bytes(0x01)
    written = digits + _bytes(ord("0")) + letters * np.uint64(ord("a") - ord("0") - 10)
    right = (width == 0) | ((width == HEX_DIGITS) & (written == characters) & (digits & _bytes(0xF0) == 0))
    for shift, mask in ((4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF), (16, 0x00000000FFFFFFFF)):
        digits = (digits | (digits >> np.uint64(shift))) & np.uint64(mask)
    return np.where(width == 0, np.uint64(0), digits).astype(np.int64), right


def _bytes(byte: int) -> np.uint64:
    """A 64-bit word that holds the byte 8 times."""
    return np.uint64(byte * 0x0101010101010101)


def _spread(values: Ints, complete: Bools, right: Bools) -> Ints:
    """The values of complete lines spread over all lines (L, ...), with 0 for lines that are invalid."""
    spread = np.zeros((len(complete), *values.shape[1:]), np.int64)
    spread[complete] = np.where(right.reshape(-1, *[1] * (values.ndim - 1)), values, 0)
    return spread


def _first_corrupt(text: bytes, line_starts: Ints, in_line: Ints, valid: Bools) -> tuple[int, str] | None:
    """(index of the first invalid line, what is wrong with it); None if all lines are valid."""
    if valid.all():
        return None
    at = int(np.argmin(valid))
    line = text[line_starts[at] : line_starts[at + 1] - 1]
    if in_line[at] != FIELDS:
        return at, f"has {counted(int(in_line[at]), 'field')}, not {FIELDS}: {_shown(line)}"
    return at, next(filter(None, map(_wrong_field, range(FIELDS), line.split(b"\t"))), f"is no sample: {_shown(line)}")


def _wrong_field(number: int, field: bytes) -> str | None:
    """What is wrong with a field of a line; None if it is valid."""
    kind, wanted, pattern = f"category {number - COUNTS}", "8 lower-case hexadecimal digits, or nothing", CATEGORY
    if number <= COUNTS:
        kind, wanted, pattern = f"count {number}", "a whole number of 18 characters at most, or nothing", COUNT
    if number == 0:
        kind, wanted, pattern = "the label", "0 or 1", LABEL
    if re.fullmatch(pattern, field):
        return None
    cause = ""
    if field.startswith(BOM):
        cause = "; the file begins with a byte-order mark: save it as UTF-8 without one"
    elif field.endswith(b"\r"):
        cause = "; lines end in CRLF: write them with LF alone (dos2unix)"
    return f"has {_shown(field)} in field {number + 1}, {kind}; it is {wanted}{cause}"


def _shown(field: bytes) -> str:
    return repr(field[:SHOWN].decode("utf-8", "backslashreplace")) + ("..." if len(field) > SHOWN else "")


def other_than_criteo(head: bytes) -> str | None:
    """What a file holds that is no click log, and what to do, judged by its first bytes; None for a click log."""
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    lines = [line for line in head.split(b"\n")[:HEAD_LINES] if line]
    if not lines or any(line.count(b"\t") == FIELDS - 1 for line in lines):
        return None
    first, fields = lines[0], 1 + lines[0].count(b"\t")
    if b"\0" in head:
        return "binary data; give lines of text, or Parquet"
    if fields == FIELDS - 1:
        return f"lines of {fields} fields without a label, as Criteo's test.txt; give its train.txt or its days"
    if re.fullmatch(rb"\S+(\s+\d+:\S+)+\s*", first):
        return "lines of libsvm; write them as Parquet (docs/data.md)"
    if b"::" in first:
        return "lines of MovieLens 1M (.dat); give a folder with ratings.csv, or write them as Parquet"
    if fields == 1 and b"," in first:
        return "comma-separated values; write them as Parquet (docs/data.md)"
    return f"lines of {counted(fields, 'field')}, and Criteo's have {FIELDS}: {_shown(first)}"


def refuse_other_than_criteo(schema: DataSchema) -> None:
    """Raise UsageError if the samples of a schema do not fit into Criteo's lines."""
    shape = (len(schema.labels), len(schema.dense), len(schema.features))
    if shape != (1, COUNTS, CATEGORIES):
        raise UsageError(
            f"Criteo's lines hold 1 label, {COUNTS} counts and {CATEGORIES} categories, and this data has "
            f"{shape[0]}, {shape[1]} and {shape[2]}; write Parquet, or change the spec"
        )
    large = next((each for each in schema.features if (each.num_embeddings or 0) > MOST_ROWS), None)
    if large is not None:
        raise UsageError(f"feature '{large.name}' has more rows than a category of 32 bits tells apart; write Parquet")


def write_lines(groups: Iterable[Batch], path: Path) -> None:
    """Write samples to a file, compressed if its name ends in .gz."""
    with _opened(path) as file:
        for samples in groups:
            file.write(criteo_lines(samples).encode("ascii"))


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "wb", PACKING)) if path.suffix == ".gz" else path.open("wb")


def criteo_lines(samples: Batch) -> str:
    """Samples as lines; dense values must be log(1 + count), as the reader returns them."""
    if any(bool((bags.lengths != 1).any()) for bags in samples.ids.values()):
        raise UsageError(
            "Criteo's lines hold one id of each feature, and some bags here hold more or none; write Parquet"
        )
    counts = np.rint(np.expm1(samples.dense.astype(np.float64))).astype(np.int64)
    ids = np.stack([bags.values for bags in samples.ids.values()], axis=1)
    rows = np.concatenate([samples.labels.astype(np.int64), counts, ids], axis=1).tolist()
    return "".join([LINE % tuple(row) for row in rows])
