"""64-bit keys of texts and whole numbers, by which values are counted, looked up and partitioned.

A key depends on the value alone and is the same on every machine. n values
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._random import Words, mixed
from recsmith._types import Ints
from recsmith.data.arrow import pyarrow

LONG = 256  # bytes; longer texts are hashed one by one: they are few, and each word of a text costs a pass over all
WORD = 8  # bytes in a word
MASKS = np.array([2 ** (8 * count) - 1 for count in range(WORD)] + [2**64 - 1], np.uint64)  # the first bytes of a word


def keys_of(values: Any) -> Words:
    """The key of each value (n,). values: pyarrow's array of large_string or int64, without nulls."""
    if pyarrow().types.is_int64(values.type):
        return mixed(values.to_numpy(zero_copy_only=False).astype(np.uint64))
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    first, last = (int(starts[0]), int(starts[-1])) if len(values) else (0, 0)
    text = np.zeros(last - first + WORD, np.uint8)
    if last > first:
        text[:-WORD] = np.frombuffer(data, np.uint8)[first:last]
    return text_keys(text, starts[:-1] - first, np.diff(starts))


def text_keys(text: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> Words:
    """The key of each text (n,): word by word of 8 bytes, the word is added to the key and the sum is mixed.

    text: the bytes of all texts, and 8 further bytes. starts, lengths: of each text in bytes (n,). Two different texts
    of equal length, of 8 bytes at most, never have the same key.
    """
    words = np.ndarray((len(text) - WORD + 1,), "<u8", text, strides=(1,))  # the 8-byte word that begins at each byte
    keys = mixed(lengths.astype(np.uint64) + np.uint64(1))
    short = lengths <= LONG
    left = np.flatnonzero(short & (lengths > 0))
    for place in range(0, LONG, WORD):
        if not len(left):
            break
        word = words[starts[left] + place] & MASKS[np.minimum(lengths[left] - place, WORD)]
        keys[left] = mixed(keys[left] + word)
        left = left[lengths[left] > place + WORD]
    for at in np.flatnonzero(~short).tolist():
        whole = text[starts[at] : starts[at] + lengths[at]].tobytes()
        keys[at] = int.from_bytes(hashlib.blake2b(whole, digest_size=WORD).digest(), "little")
    return keys
