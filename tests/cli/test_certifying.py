"""A plan is printed with no lower a bound than its certificate proves, and whatever comes of the certificate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cases import Case, cluster, table, workload

from recsmith.analyses import certificates
from recsmith.analyses.certificates import certify
from recsmith.cli.certifying import Certifying
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.plans.certificates import load_certificate


@pytest.fixture
def made() -> Plan:
    return Case(workload(table("a", 1000, 16), table("b", 500, 8)), cluster(2)).plan("cost_greedy").plan


def test_what_is_certified_is_the_bound_of_the_plan_that_is_printed_and_written_later(made: Plan, tmp_path: Path):
    weak = replace(made, bound=replace(made.bound, value_s=0.5 * (made.bound.value_s or 0.0)))
    file = tmp_path / "proof.json"
    certifying = Certifying(str(file), prove=False)
    printed = certifying.bounded(weak)
    assert not file.exists()
    certifying.write(printed)
    assert load_certificate(file).tree.seconds == printed.bound.value_s > (weak.bound.value_s or 0.0)


@pytest.mark.parametrize("error", [UsageError("it has no certificate"), KeyboardInterrupt()])
def test_a_plan_that_is_not_certified_is_printed_before_that_is_told(
    made: Plan, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*given: Any, **words: Any) -> None:
        raise error

    monkeypatch.setattr(certificates, "certify", refused)
    certifying = Certifying(str(tmp_path / "proof.json"), prove=False)
    assert certifying.bounded(made) is made
    with pytest.raises(type(error)):
        certifying.write(made)
    assert not list(tmp_path.iterdir())


def test_without_being_asked_before_the_plan_is_certified_after_it_and_without_a_file_never(made: Plan, tmp_path: Path):
    file = tmp_path / "proof.json"
    Certifying(str(file), prove=False).write(made)
    assert load_certificate(file) == certify(made)
    nothing = Certifying(None, prove=True)
    assert nothing.bounded(made) is made
    nothing.write(made)
    assert list(tmp_path.iterdir()) == [file]
