"""Session policies as the API shows them, and as requests name them."""

from collections.abc import Mapping
from typing import Any

from orchestrator.turns import session_policy as domain
from paddock.contract.policies import PolicyChoice, SessionPolicy


def policy(shown: domain.SessionPolicy) -> SessionPolicy:
    """The policy and the digest of its rules."""
    return SessionPolicy.model_validate({**shown.stored(), "sha256": shown.sha256})


def named_or_given(choice: PolicyChoice | None) -> str | Mapping[str, Any] | None:
    """The name, or the members that are given."""
    return choice if isinstance(choice, str | None) else choice.model_dump(exclude_none=True)
