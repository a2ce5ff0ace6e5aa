"""Explains what a session policy says about an operation. Nothing is done or recorded."""

from orchestrator.rules.policy.explain import ALLOWED, Explanation
from orchestrator.rules.policy.layers import Stop
from orchestrator.rules.policy.policy_remedies import remedy_of
from orchestrator.rules.policy.session_policy import PolicyRefusalError, SessionPolicy


def explain_operation(
    policy: SessionPolicy, operation: str, ref: str | None, max_tokens: int | None, network: bool
) -> Explanation:
    """The policy's decision; the arguments are those of `SessionPolicy.check`."""
    try:
        policy.check(operation, ref=ref, max_tokens=max_tokens, network=network)
    except PolicyRefusalError as error:
        rule = error.fields["rule"]
        stop = Stop("policy", error.detail, remedy_of(policy, rule, operation))
        return Explanation(False, "deny", rule, "policy", error.detail, stop.remedy, (stop,))
    named = f"policy {policy.name}" if policy.name else "the policy"
    return Explanation(True, "allow", ALLOWED, "policy", f"allowed by {named}", None, ())
