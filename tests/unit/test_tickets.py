"""Tickets for WebSockets: once, soon, by who got it, for its session. Origins of pages."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.http.auth import check_origin, is_own
from orchestrator.ground.errors import PermissionDeniedError, UnauthorizedError
from orchestrator.rules.access.keys import KeyRing, Principal, Role, digest
from orchestrator.sessions.tickets import MOST_OF_KEY, SECONDS, Tickets
from orchestrator.state.session import Session

WEB = cast(Session, SimpleNamespace(key="web"))
OTHER = cast(Session, SimpleNamespace(key="other"))


class Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys() -> KeyRing:
    return ring(ann="ann-key", bob="bob-key")


def ring(**secrets: str) -> KeyRing:
    return KeyRing({digest(key): Principal(name, Role.OPERATOR) for name, key in secrets.items()})


def who(keys: KeyRing, key: str) -> Principal:
    found = keys.authenticate(key)
    assert found is not None
    return found


def test_a_ticket_is_used_once(keys: KeyRing, clock: Clock) -> None:
    tickets = Tickets(keys, clock)
    ticket = tickets.issue(who(keys, "ann-key"), WEB)
    assert tickets.redeem(ticket, WEB).name == "ann"
    with pytest.raises(UnauthorizedError):
        tickets.redeem(ticket, WEB)


def test_a_ticket_of_another_session_is_used_up(keys: KeyRing, clock: Clock) -> None:
    tickets = Tickets(keys, clock)
    for wrong in (OTHER, None):
        ticket = tickets.issue(who(keys, "ann-key"), WEB)
        for session in (wrong, WEB):
            with pytest.raises(UnauthorizedError):
                tickets.redeem(ticket, session)


def test_a_ticket_expires(keys: KeyRing, clock: Clock) -> None:
    tickets = Tickets(keys, clock)
    ticket = tickets.issue(who(keys, "ann-key"), WEB)
    clock.now = SECONDS - 0.1
    late = tickets.issue(who(keys, "ann-key"), WEB)
    clock.now = SECONDS
    with pytest.raises(UnauthorizedError):
        tickets.redeem(ticket, WEB)
    assert tickets.redeem(late, WEB).name == "ann"


@pytest.mark.parametrize("now", [{"bob": "bob-key"}, {"ann": "another-key", "bob": "bob-key"}])
def test_a_ticket_ends_with_its_key(keys: KeyRing, clock: Clock, now: dict[str, str]) -> None:
    tickets = Tickets(keys, clock)
    ann, bob = (tickets.issue(who(keys, f"{name}-key"), WEB) for name in ("ann", "bob"))
    keys.replace(ring(**now))
    with pytest.raises(UnauthorizedError):
        tickets.redeem(ann, WEB)
    assert tickets.redeem(bob, WEB).name == "bob"


def test_a_key_has_a_number_of_tickets_and_takes_no_others(keys: KeyRing, clock: Clock) -> None:
    tickets = Tickets(keys, clock)
    other = tickets.issue(who(keys, "bob-key"), WEB)
    given = [tickets.issue(who(keys, "ann-key"), WEB) for _ in range(MOST_OF_KEY + 1)]
    assert len(tickets._unused) == MOST_OF_KEY + 1
    with pytest.raises(UnauthorizedError):
        tickets.redeem(given[0], WEB)
    for ticket in (*given[1:], other):
        tickets.redeem(ticket, WEB)


OWN: list[Any] = [
    ("http://127.0.0.1:8700", "127.0.0.1:8700"),
    ("http://LOCALHOST:8700", "localhost:8700"),
    ("http://[::1]:8700", "[::1]:8700"),
    ("https://paddock.example.org", "paddock.example.org"),
    ("https://paddock.example.org:443", "paddock.example.org"),
    ("http://paddock.example.org", "paddock.example.org:80"),
]
FOREIGN: list[Any] = [
    ("http://127.0.0.1:8701", "127.0.0.1:8700"),  # a page of a sandbox
    ("http://localhost:8700", "127.0.0.1:8700"),
    ("http://127.0.0.1", "127.0.0.1:8700"),
    ("https://paddock.example.org:8443", "paddock.example.org"),
    ("https://evil.example", "paddock.example.org"),
    ("https://paddock.example.org.evil.example", "paddock.example.org"),
    ("https://evil.example/paddock.example.org", "paddock.example.org"),
    ("https://x@paddock.example.org", "paddock.example.org"),
    ("null", "127.0.0.1:8700"),
    ("", ""),
    ("file://", ""),
    ("ws://127.0.0.1:8700", "127.0.0.1:8700"),
]


@pytest.mark.parametrize(("origin", "host"), OWN)
def test_own_pages(origin: str, host: str) -> None:
    assert is_own(origin, host)


@pytest.mark.parametrize(("origin", "host"), FOREIGN)
def test_pages_of_others(origin: str, host: str) -> None:
    assert not is_own(origin, host)
    with pytest.raises(PermissionDeniedError) as refused:
        check_origin([origin], host)
    assert refused.value.fields["rule"] == "foreign-origin"


def test_one_origin_or_none() -> None:
    check_origin([], "127.0.0.1:8700")
    with pytest.raises(PermissionDeniedError):
        check_origin(["http://127.0.0.1:8700"] * 2, "127.0.0.1:8700")
