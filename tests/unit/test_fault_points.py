"""Fault points: each is in the code once, and does nothing there."""

import ast
from collections import Counter
from pathlib import Path

from orchestrator.ground.fault_points import FaultPoint
from tests.chaos.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]


def test_each_is_named_at_one_place() -> None:
    """Where it is reached, or where it is handed to what reaches it."""
    found: Counter[str] = Counter()
    for path in (ROOT / "orchestrator").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "FaultPoint." in text else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "FaultPoint":
                found[node.attr] += 1
    assert found == Counter(point.name for point in FaultPoint)


def test_each_has_a_scenario() -> None:
    """A start needs none; moves need two nodes, and are killed by the tests of a cluster."""
    operations = {point.partition(".")[0] for point in FaultPoint}
    assert operations - set(SCENARIOS) == {"start", "arrive", "leave"}


def test_nothing_of_the_environment_makes_them_do_something() -> None:
    """What kills is among the tests; the control plane knows nothing of it."""
    for package in ("orchestrator", "api", "paddock", "sandbox_agent"):
        for path in (ROOT / package).rglob("*.py"):
            assert "DIES_AT" not in path.read_text(), path
    assert all(point.reached() is None for point in FaultPoint)  # type: ignore[func-returns-value]
