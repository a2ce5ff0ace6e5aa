"""A stored member of a session is added in five files, which is done here on a copy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(orchestrator.__file__).parents[1]
PACKAGES = ("api", "orchestrator", "paddock", "sandbox_agent")
# By its file: the text that there is, and what is added before it.
MEMBER = {
    "paddock/contract/session_requests.py": [
        ("    consume: ContextPack", "    nickname: Reference | None = None\n")
    ],
    "paddock/contract/sessions.py": [
        ("    consume: Consume | None", "    nickname: str | None\n"),
        ('    "consume": None,\n    "idle_action"', '    "nickname": None,\n'),
    ],
    "orchestrator/state/terms.py": [
        ("    @classmethod\n    def names", "    nickname: str | None = None\n\n")
    ],
    "paddock/client/session_terms.py": [
        ("    consume: ContextPack", "    nickname: str | None\n"),
    ],
    "paddock/cli/resources/sessions.py": [
        (
            '    as_json: AsJson = False,\n) -> None:\n    """Create',
            "    nickname: str | None = None,\n",
        ),
        (
            "        work_id=work,\n    )\n    with working",
            "        nickname=nickname,\n",
        ),
    ],
}
# What a client asks for is stored, found again after a restart, and shown.
PROGRAM = """
import asyncio, inspect, sqlite3
from datetime import UTC, datetime
from api.views import sessions as views
from orchestrator.ground.store.database_file import build_schema
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import Workspace
from orchestrator.rules.policy.levels import clamped_limits, load_levels
from orchestrator.state import session_rows, stored_sessions
from orchestrator.state.budget import Budget
from orchestrator.state.session import Session
from paddock.client.session_terms import session_body
from paddock.contract.session_requests import SessionBody
from paddock.contract.words import Status

async def main():
    asked = views.new_session(SessionBody(**session_body({"nickname": "bee"})))
    at, level = "2026-03-04T09:30:00.000000Z", load_levels()["low"]
    session = Session(
        key="k", id="box", owner="ci", status=Status.ACTIVE, level=level, terms=asked.terms,
        limits=clamped_limits(level, {}), budget=Budget(datetime.now(UTC), {}), handle_sha256="",
        workspace=Workspace("box", "ci", 1, "slot", "", Quota.NONE), root_dir="/",
        created_at=at, last_activity_at=at,
    )
    connection = sqlite3.connect(":memory:")
    build_schema(connection, range(10_000))
    session_rows.insert(connection, session)
    row = stored_sessions.load_with_pack(connection, "k")
    found = stored_sessions.SessionRow(row, lambda name: "/", clamped_limits).session
    print(views.session(found).nickname, session.terms.recorded()["nickname"])

asyncio.run(main())
"""


def run(copy: Path, *words: str) -> str:
    done = subprocess.run(
        (sys.executable, *words),
        cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_stored_member_is_added_in_five_files(tmp_path: Path) -> None:
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    for name, additions in MEMBER.items():
        file = tmp_path / name
        text = file.read_text()
        for before, added in additions:
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, added + before)
        file.write_text(text)
    assert len(MEMBER) == 5
    assert run(tmp_path, "-c", PROGRAM).split() == ["bee", "bee"]
    assert "--nickname" in run(tmp_path, "-m", "paddock", "sessions", "create", "--help")
