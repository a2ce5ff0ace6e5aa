"""Results of other projects' own tests: judged, kept, and shown with a reason for each failure."""

from pathlib import Path

import pytest

from scripts.compat import Exemption, Result, exceptions, keep, load, suites
from tests.foreign.outcomes import judged, of_junit

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="a" name="test_a"/>
<testcase classname="a" name="test_b"><failure message="no">no</failure></testcase>
<testcase classname="a" name="test_c"><error message="no">no</error></testcase>
<testcase classname="a" name="test_d"><skipped message="no">no</skipped></testcase>
</testsuite></testsuites>"""


def result(suite: str, passed: int, *reasons: Exemption) -> Result:
    return Result("E", "e 1", suite, "high", passed, failed=len(reasons), exceptions=reasons)


def test_results_replace_earlier_ones_of_the_same_suite(tmp_path: Path) -> None:
    path = tmp_path / "compat.json"
    assert load(path) == []
    for each in (result("b", 1), result("a", 2), result("b", 3)):
        keep(path, each)
    assert [(each.suite, each.passed) for each in load(path)] == [("a", 2), ("b", 3)]


def test_the_tables_have_each_count_and_each_reason(tmp_path: Path) -> None:
    path = tmp_path / "compat.json"
    why = "failed", "there is | no root"
    keep(path, result("a", 43, Exemption("test_root", *why), Exemption("test_user", *why)))
    assert "| E | e 1 | a | high | 43 | 2 |  |" in suites(load(path))
    row = "| E | there is \\| no root | failed | `test_root`, `test_user` |"
    assert row in exceptions(load(path))


def test_each_failure_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Result("E", "e 1", "a", "high", passed=1, failed=1)


def test_a_report_of_pytest_has_the_outcomes(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert of_junit(report) == {
        **{"test_a": "passed", "test_b": "failed"},
        **{"test_c": "failed", "test_d": "skipped"},
    }


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"a": "failed", "b": "failed"}, "'not known': \\['b'\\]"),
        ({"a": "passed"}, "'pass by now': \\['a'\\]"),
        ({}, "no tests"),
    ],
)
def test_another_outcome_than_the_known_one_is_an_error(
    outcomes: dict[str, str], said: str
) -> None:
    known = {"a": "why"} if outcomes else {}
    with pytest.raises(AssertionError, match=said):
        judged(outcomes, known, client="E", version="e 1", suite="s", level="high")


def test_known_failures_are_counted_with_their_reasons() -> None:
    outcomes = {"a": "failed", "b": "passed", "c": "skipped"}
    reasons = {"a": "no root", "c": "no display"}
    found = judged(outcomes, reasons, client="E", version="e 1", suite="s", level="high")
    assert (found.passed, found.failed, found.skipped) == (1, 1, 1)
    assert found.exceptions == [
        Exemption("a", "failed", "no root"),
        Exemption("c", "skipped", "no display"),
    ]
