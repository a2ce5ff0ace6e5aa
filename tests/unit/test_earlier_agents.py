"""What is said to agents of earlier protocols."""

import re
import tarfile
from pathlib import Path

import pytest

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.link.earlier_agents import (
    CODE,
    OLDEST,
    EarlierAgentError,
    knows,
    said,
    taken_over,
)
from sandbox_agent.decide import protocol
from sandbox_agent.decide.protocol import PROTOCOL_VERSION, Message
from tests.support.earlier_agents import KEPT

PREVIOUS = PROTOCOL_VERSION - 1


def test_an_agent_of_this_version_is_told_everything() -> None:
    params = {"path": "\\xff", "match": ["*"], "asker": "t", "new": 1}
    assert said(PROTOCOL_VERSION, "file.delete", params) is params
    assert knows(PROTOCOL_VERSION, "vouch")


@pytest.mark.parametrize("number", range(OLDEST, PROTOCOL_VERSION))
@pytest.mark.parametrize(
    ("method", "params", "left"),
    [
        ("exec", {"argv": ["ls"], "merge": False, "output_file": None}, {"argv": ["ls"]}),
        ("output", {"after": 0, "times": True}, {"after": 0}),
        ("pty.open", {"argv": ["x"], "kept": False, "cwd": ""}, {"argv": ["x"]}),
        ("file.list", {"path": ".", "glob": None, "asker": "t"}, {"path": "."}),
        ("file.delete", {"path": "a", "recursive": False}, {"path": "a"}),
        ("file.stat", {"path": "a\\b"}, {"path": "a\\b"}),
        ("shutdown", {"reason": "r", "at_once": True}, {"reason": "r", "at_once": True}),
    ],
)
def test_what_says_nothing_is_left_out(
    number: int, method: str, params: Message, left: Message
) -> None:
    assert said(number, method, params) == left


@pytest.mark.parametrize("number", range(OLDEST, PROTOCOL_VERSION))
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("exec", {"merge": True}),
        ("exec", {"output_file": "out"}),
        ("pty.open", {"kept": "sh"}),
        ("pty.open", {"cwd": "there"}),
        ("pty.run", {}),
        ("file.open", {"op": "watch", "recursive": False}),
        ("file.open", {"op": "read", "range": [0, 1]}),
        ("file.open", {"op": "write", "none_match": ["*"]}),
        ("file.open", {"op": "write", "attributes": {"user.a": "b"}}),
        ("file.list", {"glob": "*"}),
        ("file.list", {"attributes": "user."}),
        ("file.stat", {"attributes": "user."}),
        ("file.delete", {"recursive": True}),
        ("file.delete", {"match": []}),
        ("file.search", {}),
        ("file.patch", {}),
        ("file.copy", {}),
        ("file.chmod", {}),
        ("file.move", {"source": "a", "destination": "\\x80"}),
        ("file.symlink", {"path": "a", "target": "\\xff"}),
        ("vouch", {}),
        (CODE, {}),
    ],
)
def test_what_it_would_ignore_is_refused(number: int, method: str, params: Message) -> None:
    with pytest.raises(EarlierAgentError, match="of an earlier version"):
        said(number, method, params)


def test_members_have_their_own_first_protocol() -> None:
    params = {"op": "write", "path": "a", "modified": 5}
    assert said(PREVIOUS, "file.open", params) == params
    with pytest.raises(EarlierAgentError, match=r"file\.open with modified"):
        said(10, "file.open", params)
    assert said(10, "file.open", {**params, "modified": None}) == {"op": "write", "path": "a"}


def test_which_are_taken_over() -> None:
    for number in range(OLDEST, PROTOCOL_VERSION + 1):
        assert taken_over(str(number), packed=False) == number
    assert taken_over(str(PREVIOUS), packed=True) == PREVIOUS


@pytest.mark.parametrize("label", [None, "", "x", "-1", "8", "13", "٩", "9" * 5000])
def test_others_are_not(label: str | None) -> None:
    assert PROTOCOL_VERSION == 12
    with pytest.raises(SandboxUnavailableError, match="this control plane speaks 9 to 12"):
        taken_over(label, packed=False)


def test_a_pack_that_is_less_protected_is_not() -> None:
    with pytest.raises(SandboxUnavailableError, match="does not protect a context pack"):
        taken_over("9", packed=True)


def requests_of_the_protocol() -> dict[str, set[str]]:
    """Each request of its description, with the names of its members."""
    described = protocol.__doc__ or ""
    (lines,) = re.findall(r"Host → agent, requests\n(.*)Host → agent, notif", described, re.DOTALL)
    found: dict[str, set[str]] = {}
    for name, members in re.findall(r"(?:^ {4}|\} {4})([a-z.]+) +\{([^}]*)\}", lines, re.MULTILINE):
        names = re.findall(r"(?:^|,\s+)([a-z_]+)(?=[,:]|$)", members)
        found.setdefault(name, set()).update(names)
    return found


def unsaid(number: int, name: str, member: str) -> bool:
    """Whether an agent of that protocol is never sent that member, whatever its value."""
    try:
        return member not in said(number, name, {member: None})
    except EarlierAgentError:
        return True


@pytest.mark.parametrize("path", sorted(KEPT.values()), ids=lambda path: path.name[:2])
def test_the_table_has_what_earlier_agents_do_not_know(path: Path) -> None:
    """What the protocol's description has, and what is no word of their code."""
    with tarfile.open(path) as archive:
        files = [archive.extractfile(each) for each in archive.getmembers() if each.isfile()]
        code = b"".join(each.read() for each in files if each is not None).decode()
    words, number = set(re.findall(r'"([a-z._]+)"', code)), int(path.name[:2])
    described = requests_of_the_protocol()
    assert len(described) > 30
    for name, members in described.items():
        if knows(number, name):
            assert words & {name, name.partition(".")[2]}, name
        else:
            assert name not in words
        for member in members - words if knows(number, name) else ():
            assert unsaid(number, name, member), (name, member)
