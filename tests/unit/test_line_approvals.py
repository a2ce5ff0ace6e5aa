"""Lines with approved files: copies replace the paths."""

import re

import pytest

from orchestrator.rules.tools.gates import NamedFile
from orchestrator.work.terminals.line_approvals import UnboundFileError, contents, copies, digests
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.pty.kept_files import KeptFiles

_COPY = r"/tmp/\.kept-[0-9a-f]{16}/"


def test_paths_are_replaced_where_they_stand() -> None:
    text = "é a.yaml --with a.yaml b"
    named = (NamedFile("a.yaml", 2, 8), NamedFile("b", 23, 24))
    line, files = copies(text, named, {"a.yaml": b"1", "b": b"2"})
    assert re.fullmatch(rf"é {_COPY}0\.yaml --with a\.yaml {_COPY}1", line)
    assert list(files.values()) == [b"1", b"2"]
    assert all(path in line for path in files)
    assert copies(text, named, {"a.yaml": b"1", "b": b"2"}).text != line


def test_digests_are_by_path() -> None:
    (digest,) = digests({"a": b""}).values()
    assert digest.startswith("sha256:e3b0c442")


async def test_a_line_that_names_two_files_in_one_place_is_nobodys_to_approve() -> None:
    named = (NamedFile("a/b", 0, 3), NamedFile("b", 2, 3))
    with pytest.raises(UnboundFileError, match="different files"):
        await contents(None, None, None, named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/.kept-0123456789abcdef/../x",
        "/tmp/.kept-0123456789abcdef/0.a/b",
        "/tmp/.kept-0123456789ABCDEF/0",
        "/tmp/.kept-0123456789abcde/0",
        "/tmp/.kept-0123456789abcdef/0\n",
        "/workspace/0",
        "",
    ],
)
def test_the_agent_makes_copies_in_its_own_place_only(path: str) -> None:
    with pytest.raises(AgentError, match="files must be"):
        KeptFiles({path: b""})


def test_of_few_files_only() -> None:
    files = {f"/tmp/.kept-0123456789abcdef/{number}": b"" for number in range(17)}
    with pytest.raises(AgentError, match="files must be"):
        KeptFiles(files)
