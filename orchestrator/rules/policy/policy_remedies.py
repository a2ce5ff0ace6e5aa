"""Remedies for refusals of a session policy, and the policy's member that decided. Pure."""

from orchestrator.rules.policy.session_policy import (
    BUILT_IN,
    COMMANDS,
    EXECUTIONS,
    PolicyRefusalError,
    SessionPolicy,
)
from paddock.contract.remedies import POLICIES

# The member of a policy by which each rule decides.
_MEMBERS = {
    "policy-operation": "allowed_operations",
    "policy-denied": "denied_operations",
    "policy-read": "world_rules.read_patterns",
    "policy-write": "world_rules.write_patterns",
    "policy-read-only": "world_rules.read_only",
    "policy-tokens": "llm_rules.max_tokens_per_call",
}
_OF_COMMANDS = ("policy-operation", "policy-denied", "policy-execution")


def remedy_of(policy: SessionPolicy, rule: str, operation: str) -> str:
    """What to do instead, and which policy's member decides."""
    sentences = [POLICIES[rule]]
    member = _member(policy, rule, operation)
    for_commands = operation in EXECUTIONS and rule in _OF_COMMANDS
    if member in policy.inherited:
        sentences.append(
            f"The session's policy does not give `{member}`, so it has that of {policy.extends}."
        )
    elif for_commands and policy.name in BUILT_IN:
        sentences.append(f"`{member}` is that of the built-in policy {policy.name}.")
    if for_commands:
        sentences.append(
            "For commands, create the session with the built-in policy SAFE_WORK, or with one of "
            "your own, which must itself give all of these: `allowed_operations` with "
            f"{operation}, `denied_operations` without it, and "
            "`execution_rules.allow_shell_commands = true`."
        )
    return " ".join(sentences)


def commands_refused(policy: SessionPolicy) -> str | None:
    """Why turns and runs with this policy can't run commands, and the remedy; None: they may."""
    first: str | None = None
    for operation in sorted(COMMANDS):
        try:
            policy.check(operation)
        except PolicyRefusalError as error:
            remedy = remedy_of(policy, error.fields["rule"], operation)
            # The refusal of `world.run` is the most useful one, because runs use it.
            if first is None or operation == "world.run":
                first = f"{error.detail}. {remedy}"
        else:
            return None
    return first


def _member(policy: SessionPolicy, rule: str, operation: str) -> str:
    if rule == "policy-llm":
        return f"llm_rules.allow_{operation.removeprefix('llm.')}"
    if rule != "policy-execution":
        return _MEMBERS[rule]
    if operation == "subeval":
        return "execution_rules.allow_subeval"
    shell = policy.execution_rules.allow_shell_commands
    return f"execution_rules.allow_{'network_calls' if shell else 'shell_commands'}"
