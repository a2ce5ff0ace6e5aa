"""Requests for sessions, with their terms as other members."""

from typing import Any

from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms


def new_session(**members: Any) -> NewSession:
    """A request with these members, of which some are terms."""
    terms = {name: members.pop(name) for name in Terms.names() & members.keys()}
    return NewSession(terms=Terms(**terms), **members)
