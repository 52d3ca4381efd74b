"""The report as a file: it holds everything it needs, names are data, and nothing half-written is left behind."""

import base64
import hashlib
import json
import re
from pathlib import Path

from support.build import cluster, made_plan, placed, plan_of, table, workload

import recsmith
from recsmith.plans import Plan, save_plan
from recsmith.web.report import html_of, report_html
from recsmith.web.report_data import report_data

EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"


def evil_plan() -> Plan:
    """A plan whose tables are named like markup."""
    return plan_of(workload(table(EVIL)), cluster(), placed(EVIL, "table_wise", [0]))


def test_the_file_is_whole_and_loads_nothing(tmp_path: Path):
    save_plan(made_plan(), str(tmp_path / "plan.json"))
    recsmith.report(tmp_path / "plan.json", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert page.startswith("<!doctype html>\n<!-- recsmith/report/1 -->\n")
    assert "<title>plan.json: sharding plan</title>" in page
    assert not re.search(
        r"<(link|img|iframe)\b|\bsrc=|@import|url\(", re.sub(r"<script>.*</script>", "", page, flags=re.S)
    )


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else():
    page = report_html(made_plan())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    script, style = re.search(r"<script>(.*)</script>", page, re.S), re.search(r"<style>(.*?)</style>", page, re.S)
    assert script
    assert style
    script_hash, style_hash = (
        base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode() for found in (script, style)
    )
    assert policy[1] == (
        f"default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not re.search(r"</script|<!--", script[1])  # which would end the element, or hide what follows
    assert "</style" not in style[1]


def test_names_are_data():
    page = html_of(report_data(evil_plan(), EVIL))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert block
    assert not re.search("[<>&]", block[1])
    shown = json.loads(block[1])
    assert (shown["plan"]["name"], shown["tables"][0]["name"]) == (EVIL, EVIL)
