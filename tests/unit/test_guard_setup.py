"""The settings of a guard that was forked before its session was known."""

import os
import socket
from typing import Any

import pytest

from sandbox_agent.enforce import guard_messages
from sandbox_agent.enforce.guards.setup import Setup, can_be_sent, receive, send
from sandbox_agent.enforce.profile import Profile, Root

PROFILE = Profile("x86_64", None, True, b"code", mdwe=True, executable=None, cookie=(1, 2))
SETUP = Setup(54321, 64, PROFILE, "/workspace", compiled=True)


@pytest.mark.parametrize("with_ruleset", [False, True])
def test_it_arrives_as_it_was_sent(with_ruleset: bool) -> None:
    agent, guard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ruleset = os.memfd_create("ruleset") if with_ruleset else None
    with agent, guard:
        send(SETUP._replace(profile=PROFILE._replace(ruleset=ruleset)), agent)
        received = receive(guard)
        assert received is not None
        copy = received.profile.ruleset
        assert received._replace(profile=received.profile._replace(ruleset=None)) == SETUP
        assert (copy is not None) == with_ruleset
        assert received.descriptors == ({copy} if with_ruleset else set())
    for descriptor in {ruleset, copy} - {None}:
        assert descriptor is not None
        os.close(descriptor)


def test_a_guard_that_is_not_needed_gets_none() -> None:
    agent, guard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with guard:
        agent.close()
        assert receive(guard) is None


@pytest.mark.parametrize("message", [guard_messages.SETUP, b"p1", b"t 1"])
def test_nothing_else_configures_it(message: bytes) -> None:
    agent, guard = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with agent, guard:
        agent.send(message)
        with pytest.raises(ValueError, match="not the settings"):
            receive(guard)


@pytest.mark.parametrize("changed", [{"reads": object()}, {"root": Root(3, (1, 2))}])
def test_brokers_and_root_inside_need_a_fork(changed: dict[str, Any]) -> None:
    assert can_be_sent(SETUP)
    assert not can_be_sent(SETUP._replace(profile=PROFILE._replace(**changed)))
