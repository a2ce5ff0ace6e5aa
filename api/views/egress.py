"""The rules of sessions' ways out as the API shows them."""

from dataclasses import asdict

from api.shape.objects import members
from orchestrator.rules.egress.drafts import Draft
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_rules import Narrowing
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.state import session as domain
from paddock.contract.egress import (
    EgressDraft,
    EgressDrafts,
    EgressNarrowing,
    EgressUsage,
    KeyEgress,
    SessionEgress,
)
from paddock.contract.system import EgressRule, LevelEgress


def session_egress(shown: domain.Session, key_bytes: KeyBytes) -> SessionEgress:
    """What the session may reach, and what it has used."""
    own = shown.own_rules
    return SessionEgress(
        network=shown.level.network,
        level=rules(shown.level.egress),
        only=_narrowing(own.only),
        also=rules(own.also),
        revision=own.revision,
        used=EgressUsage(**asdict(shown.egress_usage)),
        key=KeyEgress(
            bytes_today=key_bytes.used(shown.owner), max_bytes_per_day=key_bytes.limit(shown.owner)
        ),
    )


def drafts(shown: domain.Session) -> EgressDrafts:
    """What the session was denied."""
    found = shown.egress_drafts
    return EgressDrafts(items=[_draft(each) for each in found], others=found.others, next=None)


def rules(shown: Rules) -> LevelEgress:
    """Rules that allow and deny."""
    return LevelEgress(allow=_rules(shown.allow), deny=_rules(shown.deny))


def rule(shown: Rule) -> EgressRule:
    """One rule."""
    return EgressRule.model_validate(
        members(
            EgressRule,
            shown,
            ports=list(shown.ports),
            methods=list(shown.methods),
            paths=[str(glob) for glob in shown.paths],
            programs=list(shown.programs),
        )
    )


def _draft(shown: Draft) -> EgressDraft:
    proposal = None if shown.missing is None else rule(shown.missing)
    last = members(EgressDraft, shown, **asdict(shown.last), reason=shown.why, proposal=proposal)
    return EgressDraft.model_validate(last)


def _narrowing(shown: Narrowing) -> EgressNarrowing:
    allow = None if shown.allow is None else _rules(shown.allow)
    return EgressNarrowing(allow=allow, deny=_rules(shown.deny))


def _rules(shown: tuple[Rule, ...]) -> list[EgressRule]:
    return [rule(each) for each in shown]
