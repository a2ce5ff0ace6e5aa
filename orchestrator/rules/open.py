"""Opens the floor of rules: the contents of the operator's files that are in force."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.key_expiry import KeyExpiry
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.access.users import SignedInUsers
from orchestrator.rules.oidc.issuers_file import IssuersFile
from orchestrator.rules.oidc.sign_in import SignIn
from orchestrator.rules.policy.levels import Levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.settings.operator_secrets import check_levels
from orchestrator.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class RulesFloor:
    """The rules in force. Each part changes as a whole while the control plane runs."""

    levels: Levels
    keys: KeyRing
    expiry: KeyExpiry
    glass: BreakGlass
    sign_in: SignIn
    session_policies: SessionPolicies
    tool_rules: ToolRules
    template_files: TemplateFiles


def open_rules(
    settings: Settings,
    levels: Levels,
    keys: KeyRing,
    issuers: IssuersFile,
    session_policies: SessionPolicies,
    tool_rules: ToolRules,
    template_files: TemplateFiles,
    closers: AsyncExitStack,
) -> RulesFloor:
    """Puts the rules that were read in force. Raises: ConfigError."""
    check_levels(settings.secrets, levels)
    users = SignedInUsers()
    sign_in = SignIn(issuers, keys, users)
    expiry = KeyExpiry(keys, users)
    closers.callback(expiry.close)
    expiry.start()
    glass = BreakGlass(required=settings.break_glass)
    return RulesFloor(
        levels, keys, expiry, glass, sign_in, session_policies, tool_rules, template_files
    )
