"""Whether a session's policy allows what is to be committed. Pure."""

from orchestrator.host.workspace.staged.commit_steps import parents
from orchestrator.rules.policy.session_policy import WorldRules
from orchestrator.work.proposals.listing import Prepared, Refusal


def forbidden(rules: WorldRules, prepared: Prepared) -> list[Refusal]:
    """The staged paths that these rules do not allow: commands can stage what no turn could.

    A new directory is allowed if something new in it is.
    """
    if rules.read_only:
        return [Refusal(ref=ref, reason="the policy is read-only") for ref in prepared.refs]
    made = set(prepared.made)
    every = [*prepared.refs, *prepared.removed]
    allowed = {ref for ref in every if rules.may_write(ref)}
    leading = {parent for ref in allowed for parent in parents(ref)}
    return [
        Refusal(ref=ref, reason="the policy's write patterns don't match it")
        for ref in every
        if ref not in allowed and not (ref in made and ref in leading)
    ]
