"""What a snapshot says of a session can be asked for again."""

from typing import Any

import pytest

from orchestrator.rules.egress.session_egress import narrowing_of
from paddock.contract.egress import NarrowingBody, body_rules

_RULE = {"host": "a.example.org", "ports": [443], "methods": ["GET"], "paths": ["/x"]}


@pytest.mark.parametrize(
    "rules",
    [
        {"allow": [_RULE, {"host": "*.b.org"}], "deny": [{"host": "c.b.org"}]},
        {"allow": [{"host": "a.org", "programs": ["curl"]}]},
        {"allow": [{"cidr": "10.0.0.0/8", "ports": [80]}]},
        {"deny": [{"host": "c.b.org", "ports": [80]}]},
        {"allow": []},
    ],
)
def test_the_rules_of_the_way_out_stay_the_same(rules: dict[str, Any]) -> None:
    def read(told: dict[str, Any]) -> Any:
        return narrowing_of(body_rules(NarrowingBody.model_validate(told)), "egress")

    assert read(read(rules).given()) == read(rules)
