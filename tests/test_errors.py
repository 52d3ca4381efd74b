"""Control characters never reach a terminal, whatever a file or a name holds."""

import json

import pytest

from recsmith.errors import CorruptFile, one_line, printable
from recsmith.files import dump_json
from recsmith.reports.layout import grid, line, show

EVIL = "\x1b[2Jred\x9b31m\u202e\x00\x7f\ud800"
SAFE = r"\x1b[2Jred\x9b31m\u202e\x00\x7f\ud800"


def test_control_characters_are_written_out_and_all_else_stays():
    assert printable(EVIL) == SAFE
    assert printable("tables\n\tür 日本 🚀") == "tables\n\tür 日本 🚀"
    assert one_line("a\nb\tc") == r"a\nb\tc"


def test_errors_and_reports_are_safe_to_print(capsys: pytest.CaptureFixture[str]):
    assert str(CorruptFile(f"'{EVIL}' is no file")) == f"'{SAFE}' is no file"
    made = grid(left=("table",))
    made.add_row(f"{EVIL}\nfree")
    for shown in (line("device", EVIL), made):
        show(shown)
    show([EVIL])
    out = capsys.readouterr().out
    assert out.count(SAFE) == 3
    assert rf"{SAFE}\nfree" in out
    assert not set(EVIL) & set(out) - set("[2Jred31m")


def test_json_holds_the_same_data_and_is_safe_to_print():
    raw = {"name": EVIL[:-1], "names": [EVIL[:-1], "ür"]}
    text = dump_json(raw)
    assert json.loads(text) == raw
    assert printable(text) == text
    assert "ür" in text
