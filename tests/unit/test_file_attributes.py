"""Extended attributes of files, as a file worker gives and tells them."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.work.files.file_entries import parse_entry
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files import attributes
from sandbox_agent.files.operations import asked
from sandbox_agent.files.stream_requests import worker_params

ENTRY: dict[str, Any] = {
    **{"path": "a", "type": "file", "size": 1, "mode": 0o644, "modified": 1.5},
}


def test_only_attributes_without_a_meaning_to_the_kernel_are_given() -> None:
    attributes.check({"user.e2b.team": "x"})
    for odd in (
        {"security.capability": "x"},
        {"trusted.x": "x"},
        {"system.posix_acl_access": "x"},
        {"user.": "x"},
        {"": "x"},
        {"user.a": "x" * 5000},
        {f"user.{n}": "" for n in range(65)},
    ):
        with pytest.raises(AgentError, match="attributes"):
            attributes.check(odd)
        with pytest.raises(AgentError, match="attributes"):
            worker_params("write", {"attributes": odd})


def test_the_worker_is_told_of_attributes_only_if_somebody_asks() -> None:
    assert "attributes" not in worker_params("write", {})
    given = worker_params("write", {"attributes": {"user.a": "1"}})
    assert given["attributes"] == {"user.a": "1"}
    assert "attributes" not in asked("stat", {"path": "a"}).request
    asking = asked("stat", {"path": "a", "attributes": "user.e2b."})
    assert asking.request["attributes"] == "user.e2b."
    with pytest.raises(AgentError):
        worker_params("write", {"attributes": {"user.a": 1}})


def test_those_with_a_prefix_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"user.e2b.a": b"1", "user.e2b.\udcff": b"\xff", "user.other": b"2"}
    monkeypatch.setattr(os, "listxattr", lambda *_, **__: list(values))
    monkeypatch.setattr(os, "getxattr", lambda _, name, **__: values[name])
    assert attributes.found(str(tmp_path), "user.e2b.") == {"a": "1", r"\xff": "\ufffd"}

    def none(*_: Any, **__: Any) -> list[str]:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "listxattr", none)
    assert attributes.found(str(tmp_path), "user.e2b.") == {}


def test_an_agent_that_lies_about_attributes_is_not_believed() -> None:
    assert parse_entry({**ENTRY, "attributes": {"a": "1"}}).attributes == {"a": "1"}
    assert parse_entry(ENTRY).attributes == {}
    for odd in ([1], "x", {str(n): "" for n in range(65)}):
        with pytest.raises(SandboxUnavailableError):
            parse_entry({**ENTRY, "attributes": odd})
