"""Archives over HTTP, by the client and at the command line."""

import json
import sqlite3
import tarfile
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.groups.places import AnchorSettings
from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cases import each
from tests.support.cli import Ended, run_beside
from tests.support.until import until

pytestmark = pytest.mark.slow

ARCHIVES = "/api/audit/archives"


class LongAfter(datetime):
    """A clock of the archiver that is far ahead: everything that a test does is long ago."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=365)


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setattr("orchestrator.record.audit.archiving.datetime", LongAfter)


async def closed(api: Api, session_id: str, key: str = OPERATOR_KEY) -> None:
    await api.session(id=session_id, permission_level="low", key=key)
    path = f"/api/sessions/{session_id}"
    await api.json("POST", path + "/exec", json={"argv": ["ls"]}, key=key)
    await api.call("DELETE", path, key=key)


def printed(ended: Ended) -> Any:
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


async def test_from_the_ledger_to_a_file_that_verifies_alone(api: Api, settings: Settings) -> None:
    await closed(api, "web-1")
    await api.session(id="live")
    before = await api.json("GET", "/api/sessions/web-1/audit/verify")
    (row,) = printed(await run_beside("audit", "archive", "--older-than", "30", "--json"))
    assert (row["session_id"], row["seq"], row["hash"]) == ("web-1", before["seq"], before["hash"])
    assert printed(await run_beside("audit", "archives", "--json")) == [row]
    file = settings.archive_path / row["file"]
    noted = "--seq", str(row["seq"]), "--hash", row["hash"]
    verdict = printed(await run_beside("audit", "verify", "--archive", str(file), *noted, "--json"))
    assert verdict == before
    audit = "/api/sessions/web-1/audit"
    for path in (
        *(audit, f"{audit}/stats", f"{audit}/export", f"{audit}/verify"),
        *("/api/sessions/web-1/ptys", "/api/approvals?session=web-1"),
    ):
        problem = await api.problem(404, "not_found", "GET", path, key=OPERATOR_KEY)
        assert row["file"] in problem["detail"]
    assert (await api.json("GET", "/api/sessions/live/audit/verify"))["ok"]
    # The id can be used again, and its new session has a chain of its own.
    await closed(api, "web-1")
    assert (await api.json("POST", ARCHIVES, json={}))["items"][0]["session_id"] == "web-1"


async def test_a_changed_file_is_found_at_the_command_line(api: Api, settings: Settings) -> None:
    await closed(api, "web-1")
    (item,) = (await api.json("POST", ARCHIVES, json={}))["items"]
    file: Path = settings.archive_path / item["file"]
    wrong = await run_beside(
        "audit", "verify", "--archive", str(file), "--seq", "1", "--hash", "0" * 64
    )
    assert (wrong.status, "✗ broken" in wrong.out) == (1, True)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    cut = await run_beside("audit", "verify", "--archive", str(file))
    assert cut.status == 1
    assert "is no archive that can be read" in cut.err
    assert (await run_beside("audit", "verify", "--archive", str(file), "web-1")).status == 2


@pytest.mark.parametrize(
    "row",
    [
        "INSERT INTO terminals (id, session_key, opened_at, record) VALUES ('t', ?, '2026', '{}')",
        "INSERT INTO approvals (id, session_key, session_id, owner, terminal_id, tool, text,"
        " risk_tier, status, requested_by, requested_at) VALUES ('a', ?, 'web-1', 'operator', 't',"
        " 'psql.drop', 'x', 'high', 'pending', 'operator', '2026')",
    ],
)
async def test_a_chain_to_which_the_next_start_will_add_is_not_archived(api: Api, row: str) -> None:
    await closed(api, "web-1")
    (session,) = api.plane.sessions.registry.all

    def insert(connection: sqlite3.Connection) -> None:
        connection.execute(row, (session.key,))

    await api.plane.database.write(insert)
    assert (await api.json("POST", ARCHIVES, json={}))["items"] == []


async def test_only_admins_archive(api: Api) -> None:
    await closed(api, "web-1")
    calls: list[tuple[str, dict[str, Any]]] = [("POST", {"json": {}}), ("GET", {})]
    for method, arguments in calls:
        await api.problem(403, "permission_denied", method, ARCHIVES, key=OPERATOR_KEY, **arguments)
    assert (await api.json("GET", "/api/sessions/web-1/audit"))["items"]


@each("body", [{"older_than": 59}, {"older_than": "60"}, {"older_than": 10**12}, {"more": 1}, []])
async def test_bodies_that_can_not_be(api: Api, body: Any) -> None:
    await closed(api, "web-1")
    await api.problem(400, "validation_error", "POST", ARCHIVES, json=body)
    assert (await api.json("GET", ARCHIVES))["items"] == []


async def test_a_search_says_what_it_left_out(api: Api) -> None:
    await closed(api, "web-1")
    await closed(api, "web-2", key=ADMIN_KEY)
    assert (await api.json("GET", "/api/audit"))["archived"] == 0
    await api.json("POST", ARCHIVES, json={})
    for query, key, count in (
        ("", ADMIN_KEY, 2),
        ("?session=web-1", ADMIN_KEY, 1),
        ("?session=web-1&incarnation=2", ADMIN_KEY, 0),
        ("?owner=operator", ADMIN_KEY, 1),
        ("", OPERATOR_KEY, 1),
        ("?session=web-2", OPERATOR_KEY, 0),
        ("?to=2020-01-01T00:00:00Z", ADMIN_KEY, 0),
    ):
        found = await api.json("GET", f"/api/audit{query}", key=key)
        assert found["archived"] == count, (query, key)


async def test_pages(api: Api) -> None:
    for number in range(3):
        await closed(api, f"web-{number}")
    await api.json("POST", ARCHIVES, json={})
    first = await api.json("GET", f"{ARCHIVES}?limit=2")
    rest = await api.json("GET", f"{ARCHIVES}?limit=2&after={first['next']}")
    keys = [item["session_key"] for item in (*first["items"], *rest["items"])]
    assert (len(set(keys)), keys, rest["next"]) == (3, sorted(keys), None)


class TestAnchored:
    """Chains are verified against their anchored heads."""

    @pytest.fixture
    def settings(self, settings: Settings, state_dir: Path) -> Settings:
        anchor = AnchorSettings(file=state_dir / "anchors", interval=1)
        return settings.model_copy(update={"anchor": anchor})

    @pytest.fixture
    def anchors(self, settings: Settings) -> Path:
        assert settings.anchor is not None
        assert settings.anchor.file is not None
        return settings.anchor.file

    async def test_sessions_exports_and_archives(
        self, api: Api, settings: Settings, anchors: Path, tmp_path: Path
    ) -> None:
        await closed(api, "web-1")
        head = await api.json("GET", "/api/sessions/web-1/audit/verify")
        await until(lambda: anchors.exists() and head["hash"] in anchors.read_text())
        key = (settings.state_dir / "anchor.pub").read_text().strip()
        by = "--anchor", str(anchors), "--public-key", key
        assert printed(await run_beside("audit", "verify", "web-1", *by, "--json"))["ok"]
        export = tmp_path / "web-1.jsonl"
        assert (await run_beside("audit", "export", "web-1", "-o", str(export))).status == 0
        whole = await run_beside("audit", "verify", "--file", str(export), *by, "--json")
        assert printed(whole)["ok"]
        cut = tmp_path / "cut.jsonl"
        cut.write_text("".join(export.read_text().splitlines(keepends=True)[:-1]))
        plain = await run_beside("audit", "verify", "--file", str(cut))
        assert plain.status == 0
        found = await run_beside("audit", "verify", "--file", str(cut), *by)
        assert (found.status, "before the anchored seq" in found.out) == (1, True)
        (item,) = (await api.json("POST", ARCHIVES, json={}))["items"]
        archive = str(settings.archive_path / item["file"])
        assert printed(await run_beside("audit", "verify", "--archive", archive, *by, "--json"))[
            "ok"
        ]
        other = "--anchor", str(anchors), "--public-key", "0" * 64
        refused = await run_beside("audit", "verify", "--archive", archive, *other)
        assert (refused.status, "signed by another key" in refused.err) == (1, True)

    async def anchored(self, api: Api, anchors: Path, sessions: int) -> tuple[str, ...]:
        """Ends this many sessions of one id, all anchored; returns the options to verify with."""
        heads = []
        for _ in range(sessions):
            await closed(api, "web-1")
            heads.append((await api.json("GET", "/api/sessions/web-1/audit/verify"))["hash"])
        await until(lambda: anchors.exists() and all(h in anchors.read_text() for h in heads))
        key = (api.plane.settings.state_dir / "anchor.pub").read_text().strip()
        return "--anchor", str(anchors), "--public-key", key

    async def forget(self, api: Api, incarnation: int, *tables: str) -> None:
        """Deletes rows, as an attacker with write access to the database could."""

        def delete(connection: Any) -> None:
            (key,) = connection.execute(
                "SELECT key FROM sessions WHERE id = 'web-1' AND incarnation = ?", (incarnation,)
            ).fetchone()
            for table in tables:
                column = "key" if table == "sessions" else "session_key"
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))

        await api.plane.database.write(delete)

    async def test_one_incarnation_is_not_taken_for_another(
        self, api: Api, anchors: Path, tmp_path: Path
    ) -> None:
        by = await self.anchored(api, anchors, 2)
        first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
        for number, file in ((1, first), (2, second)):
            this = "--incarnation", str(number)
            export = await run_beside("audit", "export", "web-1", *this, "-o", str(file))
            assert export.status == 0
            for place in (("web-1",), ("--file", str(file))):
                found = await run_beside("audit", "verify", *place, *this, *by, "--json")
                assert printed(found)["ok"]
        assert printed(await run_beside("audit", "verify", "web-1", *by, "--json"))["ok"]
        assert printed(await run_beside("audit", "verify", *by, "--json")) == {
            "ok": True,
            "sessions": 2,
        }
        wrong = await run_beside("audit", "verify", "--file", str(first), "--incarnation", "2", *by)
        assert (wrong.status, "is of the incarnation 1" in wrong.err) == (1, True)
        # The first chain, put in place of the second, is intact and was anchored.
        await self.forget(api, 2, "events")
        await api.plane.database.write(
            lambda connection: (
                connection.execute(
                    "UPDATE sessions SET incarnation = 3 - incarnation WHERE id = 'web-1'"
                ).rowcount
            )
        )
        choices: list[tuple[str, ...]] = [(), ("--incarnation", "2")]
        for which in choices:
            found = await run_beside("audit", "verify", "web-1", *which, *by)
            assert (found.status, "✗ broken" in found.out) == (1, True)

    @pytest.mark.parametrize("which", [1, 2])
    async def test_a_session_that_has_vanished_is_noticed(
        self, api: Api, anchors: Path, which: int
    ) -> None:
        by = await self.anchored(api, anchors, 2)
        await self.forget(api, which, "events", "event_counts", "sessions")
        gone = f"the incarnation {which} is gone"
        for place in (("web-1",), ("web-1", "--incarnation", str(which)), ()):
            found = await run_beside("audit", "verify", *place, *by)
            assert (found.status, gone in found.out) == (1, True), place
        other = await run_beside("audit", "verify", "web-1", "--incarnation", str(3 - which), *by)
        assert other.status == 0

    async def test_all_sessions_of_an_id_that_have_vanished_are_noticed(
        self, api: Api, anchors: Path
    ) -> None:
        by = await self.anchored(api, anchors, 1)
        await self.forget(api, 1, "events", "event_counts", "sessions")
        for place in (("web-1",), ()):
            found = await run_beside("audit", "verify", *place, *by)
            assert (found.status, "is gone" in found.out) == (1, True), found

    async def test_what_is_archived_is_not_gone(
        self, api: Api, settings: Settings, anchors: Path
    ) -> None:
        by = await self.anchored(api, anchors, 1)
        (item,) = (await api.json("POST", ARCHIVES, json={}))["items"]
        await api.session(id="web-1", permission_level="low", key=OPERATOR_KEY)
        await until(lambda: '"incarnation":2' in anchors.read_text())
        for place in (("web-1",), ()):
            found = await run_beside("audit", "verify", *place, *by)
            assert (found.status, f"is archived: verify {item['file']}" in found.err) == (
                0,
                True,
            ), found
        archive = str(settings.archive_path / item["file"])
        assert (await run_beside("audit", "verify", "--archive", archive, *by)).status == 0

    async def test_a_session_that_nobody_was_told_of_is_not_gone(
        self, api: Api, anchors: Path, engine: FakeEngine
    ) -> None:
        engine.fail_next("create")
        body = {"id": "web-1", "permission_level": "low"}
        await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
        by = await self.anchored(api, anchors, 1)
        found = await run_beside("audit", "verify", *by, "--json")
        assert printed(found) == {"ok": True, "sessions": 2}
        assert (await run_beside("audit", "verify", "web-1", *by)).status == 0
        # Its records are archived like those of other sessions.
        items = (await api.json("POST", ARCHIVES, json={}))["items"]
        assert [item["session_id"] for item in items] == ["web-1"] * 2

    async def test_options_that_do_not_go_together(self, anchors: Path) -> None:
        for options in ((), ("--anchor", str(anchors), "--seq", "1", "--hash", "0" * 64)):
            assert (await run_beside("audit", "verify", *options)).status == 2


async def test_the_command_line_and_the_client_say_it_too(api: Api, settings: Settings) -> None:
    for name in ("web-1", "web-2"):
        await closed(api, name)
    whole = await run_beside("audit", "search", "--operation", "command.start", "--json")
    assert (len(whole.out.splitlines()), whole.err) == (2, "")
    await run_beside("audit", "archive", "--older-than", "30")
    await closed(api, "web-3")
    for more in ((), ("--limit", "1"), ("--json",), ("--text", "nothing-has-that")):
        ended = await run_beside("audit", "search", "--operation", "command.start", *more)
        assert (ended.status, len(ended.out.splitlines())) == (0, 0 if "--text" in more else 1)
        assert "not searched: 2." in ended.line
        assert "paddock audit verify --archive FILE" in ended.line
    one = await run_beside("audit", "search", "--session", "web-3", "--json")
    assert one.err == ""
    # The suggested remedy finds the events that the search left out.
    (item, _) = (await api.json("GET", ARCHIVES))["items"]
    with tarfile.open(settings.archive_path / item["file"]) as archive:
        chain = archive.extractfile("events.jsonl")
        assert chain is not None
        assert b'"operation":"command.start"' in chain.read()
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        told: list[int] = []
        found = paddock.search(operation="command.start", on_archived=told.append)
        assert [event.session_id async for event in found] == ["web-3"]
        assert told == [2]
        told.clear()
        assert [event async for event in paddock.search(session="web-3", on_archived=told.append)]
        assert told == [0]
