"""The report of a plan: one HTML file that opens without a network, in any browser of today.

The file contains the page's scripts and style (src/recsmith/web/static, built from web/), and its data as JSON. A
strict Content-Security-Policy names the script and the style by their digests, so nothing else runs, whatever the
plan's names contain; and nothing is loaded from anywhere.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from recsmith.analyses.table_switches import advise_plan
from recsmith.errors import one_line
from recsmith.files import Source, encode, source_text, write_text
from recsmith.planning.simulate import load_priced
from recsmith.plans import Plan
from recsmith.reports.advice import told_advice
from recsmith.reports.capacity import capacity_notes, load_capacity
from recsmith.units import counted, format_gap, format_size, format_time
from recsmith.web.report_data import ReportData, report_data

BEGINNING = "<!doctype html>\n<!-- recsmith/report/1 -->\n"
REPORT_FILE = rb"<!doctype html>\n<!-- recsmith/report/"  # how files begin that `-o` may overwrite
PAGE = """<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; \
style-src '{style_hash}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="report"><h1>{title}</h1><p>{sentence}</p><noscript><p>The charts need JavaScript.</p></noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
<template id="licences"><pre>{licences}</pre></template>
</body>
</html>
"""


def report(
    plan: Plan | Source,
    target: Source,
    *,
    against: Plan | Source | None = None,
    advice: bool = False,
    capacity: Source | None = None,
) -> None:
    """Write the report of a plan: one HTML file with charts of its seconds, memory and shards, that opens offline.

    plan: a Plan, or its file. against: another plan for the same tables; the report then shows what changed from it.
    advice: whether it also says which changes pay, which takes as long as `recsmith advise`. capacity: a file of
    `recsmith data capacity --format json`; the report then says how many lookups the rows of each table serve.

    Raises:
        UsageError: a file cannot be read or written, or the other plan is of other tables; CorruptFile or PlanMismatch
            if a file holds no plan. Nothing is written then.
    """
    write_text(source_text(target, "an output"), report_html(plan, against=against, advice=advice, capacity=capacity))


def report_html(
    plan: Plan | Source,
    *,
    against: Plan | Source | None = None,
    advice: bool = False,
    capacity: Source | None = None,
    on_switch: Callable[[str], object] | None = None,
) -> str:
    """The report of a plan as text. on_switch: called with the name of each change before it is priced."""
    shown, other = load_priced(plan), None if against is None else load_priced(against)
    advised = told_advice(advise_plan(shown, on_switch)) if advice else None
    data = report_data(shown, _name_of(plan), other, _name_of(against), advised)
    if capacity is not None:
        notes = capacity_notes(shown, load_capacity(capacity))
        data = replace(data, plan=replace(data.plan, notes=(*data.plan.notes, *notes)))
    return html_of(data)


def _name_of(plan: Plan | Source | None) -> str:
    """The name of a plan's file; '' if the plan is not from a file."""
    return Path(plan).name if isinstance(plan, str | os.PathLike) and plan != "-" else ""


def html_of(shown: ReportData) -> str:
    """The HTML page for the data of a report."""
    static = files("recsmith.web") / "static"
    names = ("app/charts.js", "report/report.js", "report/report.css", "LICENSES.txt")
    charts, report, style, licences = ((static / name).read_text("utf-8") for name in names)
    script = f"{charts}\n{report}"
    return BEGINNING + PAGE.format(
        title=html.escape(one_line(f"{shown.plan.name}: sharding plan")), sentence=html.escape(sentence_of(shown)),
        script=script, script_hash=_hash_of(script), style=style, style_hash=_hash_of(style), data=_data_block(shown),
        licences=html.escape(licences),
    )  # fmt: skip


def sentence_of(shown: ReportData) -> str:
    """The plan in a sentence, for readers who see no charts."""
    work, plan = shown.workload, shown.plan
    best = "" if plan.gap is None else f", at most {format_gap(plan.gap)} above the best"
    tables, size = counted(work.tables, "table"), format_size(work.weight_bytes)
    return one_line(f"{tables} ({size}) on {plan.cluster}: {format_time(plan.total_s)} a step, predicted{best}.")


def _data_block(shown: ReportData) -> str:
    """JSON for a script element: escaped, so that no character in it can end the element or begin a comment."""
    text = json.dumps(encode(shown), separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _hash_of(text: str) -> str:
    """The digest by which a Content-Security-Policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
