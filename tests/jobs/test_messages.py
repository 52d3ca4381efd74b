"""Arrays through pipes: what is sent is received, whole or not at all."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from recsmith.errors import CorruptFile
from recsmith.jobs.messages import receive, send, text_of, words_of

ARRAYS = st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.uint8]).flatmap(
    lambda kind: arrays(kind, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
)


@given(sent=st.dictionaries(st.text("abc", min_size=1, max_size=3), ARRAYS, max_size=3), words=st.text(max_size=5))
def test_what_is_sent_is_received(sent: dict[str, np.ndarray], words: str) -> None:
    pipe = io.BytesIO()
    send(pipe, sent)
    send(pipe, {"words": text_of(words)})
    pipe.seek(0)
    found = receive(pipe)
    assert found is not None
    assert found.keys() == sent.keys()
    for name, value in sent.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    last = receive(pipe)
    assert last is not None
    assert words_of(last["words"]) == words
    assert receive(pipe) is None


def test_what_breaks_off_is_the_end_and_what_is_no_message_is_refused() -> None:
    whole = io.BytesIO()
    send(whole, {"a": np.arange(5)})
    for length in (0, 3, 8, len(whole.getvalue()) - 1):
        assert receive(io.BytesIO(whole.getvalue()[:length])) is None
    with pytest.raises(CorruptFile, match="no message"):
        receive(io.BytesIO(struct.pack(">Q", 9) + b"{} {} {} "))
    with pytest.raises(CorruptFile, match="the largest have"):
        receive(io.BytesIO(b"Traceback (most recent call last):"))
