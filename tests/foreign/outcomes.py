"""What came of another project's suite, compared with what is known not to pass."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from scripts.compat import Exemption, Result

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# The outcome of each test by its name.
Outcomes = Mapping[str, str]


def of_junit(report: Path, *, modules: bool = False) -> dict[str, str]:
    """The outcomes in a report that pytest writes with `--junit-xml`.

    `modules`: names begin with the test's module, as tests of several have the same name.
    """
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else PASSED
        module = case.attrib["classname"].rpartition(".")[2]
        name = case.attrib["name"]
        found[f"{module}::{name}" if modules else name] = SKIPPED if "skipped" in kinds else outcome
    return found


def judged(
    outcomes: Outcomes,
    reasons: Mapping[str, str],
    *,
    client: str,
    version: str,
    suite: str,
    level: str,
) -> Result:
    """The result of a suite. `reasons` has every test that is known not to pass, and why.

    Raises: AssertionError if another test does not pass, or if one of these does.
    """
    not_passed = {name: outcome for name, outcome in outcomes.items() if outcome != PASSED}
    assert outcomes, "the suite has no tests"
    assert not_passed.keys() == reasons.keys(), {
        "not known": sorted(not_passed.keys() - reasons.keys()),
        "pass by now": sorted(reasons.keys() - not_passed.keys()),
    }
    counted = list(outcomes.values())
    return Result(
        client,
        version,
        suite,
        level,
        passed=counted.count(PASSED),
        failed=counted.count(FAILED),
        skipped=counted.count(SKIPPED),
        exceptions=[Exemption(name, not_passed[name], reasons[name]) for name in sorted(reasons)],
    )
