"""Session policies as the API shows them, and as requests name them."""

from collections.abc import Mapping
from typing import Any

from orchestrator.rules.policy import session_policy as domain
from orchestrator.rules.policy.policy_remedies import commands_refused
from paddock.contract.policies import ListedPolicy, PolicyChoice, SessionPolicy


def policy(shown: domain.SessionPolicy) -> SessionPolicy:
    """The policy and the digest of its rules."""
    return SessionPolicy.model_validate(_members(shown))


def listed_policy(shown: domain.SessionPolicy) -> ListedPolicy:
    """Also where its members come from, and whether commands may be run with it."""
    origin = {
        "extends": shown.extends,
        "inherited": sorted(shown.inherited),
        "commands_refused": commands_refused(shown),
    }
    return ListedPolicy.model_validate(_members(shown) | origin)


def _members(shown: domain.SessionPolicy) -> dict[str, Any]:
    return {"name": shown.name, **shown.rules(), "sha256": shown.sha256}


def named_or_given(choice: PolicyChoice | None) -> str | Mapping[str, Any] | None:
    """The name, or the members that are given."""
    return choice if isinstance(choice, str | None) else choice.model_dump(exclude_none=True)
