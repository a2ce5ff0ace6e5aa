"""The way out of one session: its rules and their use."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.egress import drafts, session_egress
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_egress import narrowing_of, rules_of
from orchestrator.rules.egress.session_rules import Narrowing
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.session_egress import SessionEgress as EgressService
from paddock.contract.egress import (
    EgressBody,
    EgressDrafts,
    EgressRulesBody,
    SessionEgress,
    body_rules,
)

_TAG = "Sessions"


@operation(
    "GET",
    SESSION + "/egress",
    Access.READ,
    tag=_TAG,
    summary="Show what a session may reach",
    answers="The rules and their use.",
)
async def show_egress(context: Context, key_bytes: KeyBytes) -> SessionEgress:
    """The rules of the session's way out, and what it has used of it."""
    return session_egress(context.session(), key_bytes)


@operation(
    "PUT",
    SESSION + "/egress",
    Access.MANAGE,
    tag=_TAG,
    summary="Change what a session may reach",
    answers="The rules as they are now.",
    errors=("session_terminated", "conflict"),
    examples={
        "narrow": {"only": {"allow": [{"host": "pypi.org", "ports": [443]}]}},
        "widen": {"also": {"allow": [{"host": "*.example.org"}]}, "revision": 2},
    },
)
async def change_egress(
    context: Context, egress: EgressService, key_bytes: KeyBytes, body: EgressBody
) -> SessionEgress:
    """Sets `only`, or `also`, which is for admins.

    The rules hold from the next request on, and connections that they do not allow are ended. What
    only narrows holds even if it can't be recorded now: the answer is 503 `audit_unavailable`, and
    the record follows as soon as possible.
    """
    session, given = context.session(), body.model_fields_set
    only: Narrowing | None = None
    also: Rules | None = None
    if "only" in given:
        only = narrowing_of(body_rules(body.only), "only")
    if "also" in given:
        also = rules_of(body_rules(body.also), "also")
    await context.work.complete(
        egress.change(context.principal, session, only, also, body.revision)
    )
    return session_egress(session, key_bytes)


@operation(
    "POST",
    SESSION + "/egress/rules",
    Access.MANAGE,
    tag=_TAG,
    summary="Add rules to what a session may reach",
    answers="The rules as they are now.",
    errors=("session_terminated", "conflict"),
    examples={
        "allow": {"allow": [{"host": "pypi.org"}]},
        "deny": {"deny": [{"host": "tracker.example"}]},
        "draft": {"drafts": [1]},
    },
)
async def add_egress_rules(
    context: Context, egress: EgressService, key_bytes: KeyBytes, body: EgressRulesBody
) -> SessionEgress:
    """Adds rules to `only` and `also`, wherever they are necessary.

    What the level does not allow is added to `also`, which is for admins. An admin's denial is
    added to `also`, an owner's to `only`. What is allowed is removed from denials that the caller
    may change.
    """
    session = context.session()
    rules = rules_of(body_rules(body), "")
    await context.work.complete(
        egress.add(context.principal, session, rules.allow, rules.deny, body.drafts)
    )
    return session_egress(session, key_bytes)


@operation(
    "GET",
    SESSION + "/egress/drafts",
    Access.READ,
    tag=_TAG,
    summary="List what a session was denied to reach",
    answers="The drafts.",
)
async def list_egress_drafts(context: Context) -> EgressDrafts:
    """Denied requests of the session, gathered by the rules that would allow them."""
    return drafts(context.session())
