"""The example of a host's loop: nothing reaches the workspace before its commit."""

import asyncio
import sys
from importlib import import_module
from typing import Any

import pytest

from images.builder import build
from paddock import PaddockSync, Proposals
from tests.support.server import ROOT, Server, leaving_nothing

_FILE = "src/click/parser.py"


def _has_fix(server: Server) -> bool:
    """Whether the workspace of the session that stages, which has no tests, is mended."""
    [workspace] = [
        place
        for place in (server.state_dir / "session-workspaces").iterdir()
        if not (place / "tests").exists() and (place / _FILE).exists()
    ]
    return "out.append(lex.token)" in (workspace / _FILE).read_text()


async def test_only_what_is_approved_reaches_the_workspace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build(report=lambda _line: None)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example: Any = import_module("host_loop")
    answers: Any = import_module("support.model")
    scripted, seen = answers.scripted(), list[bool]()
    async with leaving_nothing() as server:

        def ask(session: Any, prompt: str) -> str:
            seen.append(_has_fix(server))
            return str(scripted(session, prompt))

        def reject(staged: Proposals) -> bool:
            assert [each.ref for each in staged.items] == [_FILE]
            return False

        def rejected() -> None:
            wrong, agent = {_FILE: example.MISTAKE[2]}, {"policy": "SAFE_EDIT"}
            with (
                PaddockSync(server.url, server.key) as paddock,
                example.session_with(paddock, wrong, permission_level="low", **agent) as work,
            ):
                out, fix = example.Terminal(), answers.ANSWERS[2]
                assert not example.loop(out, work, work, lambda *_: fix, reject)
                assert work.info.status == "aborted"
                assert not _has_fix(server)

        await asyncio.to_thread(rejected)
        assert "rejected: the session is aborted" in capsys.readouterr().out
        monkeypatch.setenv("PADDOCK_URL", server.url)
        monkeypatch.setenv("PADDOCK_KEY", server.key)
        monkeypatch.setattr(sys, "argv", ["host_loop.py"])
        monkeypatch.setattr(example, "scripted", lambda: ask)
        assert await asyncio.to_thread(example.run_program) == 0
        # As it was asked each time: before the commit, and once after it.
        assert seen == [False, False, False, True]
    said = capsys.readouterr().out
    for line in ("✗ error: Write not allowed: tests/", "approved by a rule", "7 passed"):
        assert line in said
