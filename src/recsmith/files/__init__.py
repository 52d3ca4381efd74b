"""Strict reading and atomic writing of files; all nouns (frozen dataclasses) are read and written here.

A file is text (texts.py) -> plain data (parsing.py) -> a noun (nouns.py). Nothing is guessed: duplicate keys, NaN, YAML
tags, unknown fields and numbers written as text are refused, each with the place and the fix. targets.py decides which
output files may be written.
"""

from recsmith.files.lines import json_lines, text_lines
from recsmith.files.nouns import (
    built,
    check_schema,
    decode,
    decode_part,
    did_you_mean,
    dump_json,
    encode,
    json_schema,
    read_json,
    read_raw,
    reading,
    spell_out,
)
from recsmith.files.parsing import Raw, parse, parse_json, parse_number, parse_yaml
from recsmith.files.targets import check_target, locked_folder, starts_with_schema
from recsmith.files.texts import (
    LARGEST_FILE,
    AnyPath,
    Given,
    Source,
    by_number,
    check_is_file,
    check_is_no_address,
    check_once,
    files_inside,
    in_order,
    is_address,
    is_regular_file,
    path_of,
    read_bytes,
    read_text,
    replace_file,
    shown_address,
    source_text,
    write_text,
)

__all__ = [
    "LARGEST_FILE",
    "AnyPath",
    "Given",
    "Raw",
    "Source",
    "built",
    "by_number",
    "check_is_file",
    "check_is_no_address",
    "check_once",
    "check_schema",
    "check_target",
    "decode",
    "decode_part",
    "did_you_mean",
    "dump_json",
    "encode",
    "files_inside",
    "in_order",
    "is_address",
    "is_regular_file",
    "json_lines",
    "json_schema",
    "locked_folder",
    "parse",
    "parse_json",
    "parse_number",
    "parse_yaml",
    "path_of",
    "read_bytes",
    "read_json",
    "read_raw",
    "read_text",
    "reading",
    "replace_file",
    "shown_address",
    "source_text",
    "spell_out",
    "starts_with_schema",
    "text_lines",
    "write_text",
]  # fmt: skip
