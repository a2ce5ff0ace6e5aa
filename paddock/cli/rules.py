"""Rules of the way out as text."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.contract.system import EgressRule


def rules_text(rules: "Iterable[EgressRule]") -> str | None:
    """The rules as answers of the way out name them; None if there are none."""
    return "; ".join(map(rule_text, rules)) or None


def rule_text(rule: "EgressRule") -> str:
    """One rule."""
    ports = f":{','.join(map(str, rule.ports))}" if rule.ports else ""
    inspected = "(inspected)" if rule.inspect else ""
    parts = [f"{rule.host or rule.cidr}{ports}", ",".join(rule.methods), *rule.paths, inspected]
    return " ".join(part for part in parts if part)
