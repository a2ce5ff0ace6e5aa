"""Ownership of workspaces and their directories."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.ground import store
from orchestrator.ground.errors import CapacityExhaustedError, ConflictError, ValidationError
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.slots import (
    claim,
    clock_changed,
    find,
    hide,
    holdings,
    keep,
    kept,
    make_data,
    make_slot,
    next_expiry,
    order_expired_purges,
    order_purge,
    ordered_purges,
    release,
    show,
)

MIGRATIONS = Path(store.__file__).parent / "migrations"
SLOT = "0123456789abcdef"


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as conn:
        for script in sorted(MIGRATIONS.glob("*.sql")):
            conn.executescript(script.read_text(encoding="utf-8"))
        yield conn


def test_an_id_belongs_to_its_first_owner(conn: sqlite3.Connection) -> None:
    first = claim(conn, "build", "ann", 1000, 10, Quota.IMAGE)
    assert claim(conn, "build", "ann", 1000, 10, Quota.IMAGE) == first
    with pytest.raises(ConflictError) as caught:
        claim(conn, "build", "bob", 1000, 10, Quota.IMAGE)
    assert "ann" not in caught.value.detail
    release(conn, "build")
    assert find(conn, "build") is None
    assert claim(conn, "build", "bob", 1000, 10, Quota.IMAGE).slot != first.slot


def test_a_workspace_that_is_being_purged_is_nobody_s(conn: sqlite3.Connection) -> None:
    workspace = claim(conn, "build", "ann", 1000, 10, Quota.IMAGE)
    assert ordered_purges(conn) == []
    order_purge(conn, "build")
    assert ordered_purges(conn) == [workspace]
    with pytest.raises(ConflictError, match="being purged"):
        claim(conn, "build", "ann", 1000, 10, Quota.IMAGE)
    release(conn, "build")
    assert claim(conn, "build", "ann", 1000, 10, Quota.IMAGE).slot != workspace.slot


def test_ids_differ_in_more_than_case(conn: sqlite3.Connection) -> None:
    claim(conn, "Build", "ann", 1000, 10, Quota.IMAGE)
    for owner in ("ann", "bob"):
        with pytest.raises(ConflictError):
            claim(conn, "build", owner, 1000, 10, Quota.IMAGE)
    assert find(conn, "build") is None
    assert find(conn, "Build") is not None


def test_uids_are_the_lowest_free_ones(conn: sqlite3.Connection) -> None:
    uids = [claim(conn, f"w{number}", "ann", 1000, 3, Quota.IMAGE).uid for number in range(3)]
    assert uids == [1000, 1001, 1002]
    with pytest.raises(CapacityExhaustedError):
        claim(conn, "w3", "ann", 1000, 3, Quota.IMAGE)
    release(conn, "w1")
    assert claim(conn, "w3", "ann", 1000, 3, Quota.IMAGE).uid == 1001
    # A newly configured range is used from its start.
    assert claim(conn, "w4", "ann", 5000, 3, Quota.IMAGE).uid == 5000


def end_session(conn: sqlite3.Connection, workspace: str, key: str, ended: str | None) -> None:
    status = "active" if ended is None else "completed"
    conn.execute(
        "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
        " created_at, terminated_at) VALUES (?, ?, 'ann', ?, 'low', '{}', '2026', ?)",
        (key, workspace, status, ended),
    )


def test_a_workspace_expires_with_its_last_session(conn: sqlite3.Connection) -> None:
    for name in ("old", "living", "used-again", "never"):
        claim(conn, name, "ann", 1000, 10, Quota.IMAGE)
    end_session(conn, "old", "k1", "2026-01-01")
    end_session(conn, "old", "k2", "2026-01-03")
    end_session(conn, "living", "k3", "2026-01-01")
    end_session(conn, "living", "k4", None)
    end_session(conn, "used-again", "k5", "2026-01-01")
    end_session(conn, "used-again", "k6", "2026-01-09")
    assert next(workspace.id for workspace in kept(conn)) == "living"
    assert next_expiry(conn) == "2026-01-03"
    assert order_expired_purges(conn, "2026-01-03") == 0
    assert order_expired_purges(conn, "2026-01-04") == 1
    assert [workspace.id for workspace in ordered_purges(conn)] == ["old"]
    assert {workspace.id for workspace in kept(conn)} == {"living", "used-again", "never"}
    assert next_expiry(conn) == "2026-01-09"
    assert order_expired_purges(conn, "2026-01-04") == 0


def test_a_clock_that_is_set_leaves_each_workspace_its_time(conn: sqlite3.Connection) -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    for name, ended in (("old", "2026-01-03"), ("later", "2026-01-09"), ("ahead", "2031-01-01")):
        claim(conn, name, "ann", 1000, 10, Quota.IMAGE)
        end_session(conn, name, name, f"{ended}T00:00:00.000000Z")
    year = timedelta(days=365)
    clock_changed(conn, year, now + year)
    assert order_expired_purges(conn, "2027-01-03") == 0
    assert next_expiry(conn) == "2027-01-03T00:00:00.000000Z"
    # Back again, as time servers do.
    clock_changed(conn, -year, now)
    assert next_expiry(conn) == "2026-01-03T00:00:00.000000Z"
    assert order_expired_purges(conn, "2026-01-09T12") == 2
    # What ended when the clock was ahead is kept from now on, not from then.
    assert next_expiry(conn) == "2026-01-10T00:00:00.000000Z"
    # A session that used it since counts, however the clock was set before.
    keep(conn, "ahead")
    assert next_expiry(conn) == "2031-01-01T00:00:00.000000Z"


def test_workspaces_of_before_are_held_by_nothing() -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        first, *later = sorted(MIGRATIONS.glob("*.sql"))
        conn.executescript(first.read_text(encoding="utf-8"))
        conn.execute(
            "INSERT INTO workspaces (id, owner, uid, slot, created_at)"
            " VALUES ('w', 'ann', 1000, ?, '2026')",
            (SLOT,),
        )
        for script in later:
            conn.executescript(script.read_text(encoding="utf-8"))
        found = find(conn, "w")
        assert found is not None
        assert found.quota is Quota.NONE


def test_bad_ids_are_refused(conn: sqlite3.Connection) -> None:
    with pytest.raises(ValidationError):
        claim(conn, "..", "ann", 1000, 3, Quota.IMAGE)


def make(state: Path, slot: str = SLOT) -> Path:
    make_slot(state / "slots" / slot)
    return make_data(state / "slots" / slot / "data", os.getuid())


def test_a_slot_is_made_once(tmp_path: Path) -> None:
    data = make(tmp_path)
    (data / "kept").write_text("x")
    data.chmod(0o755)
    assert make(tmp_path) == data
    assert (data / "kept").read_text() == "x"
    assert data.stat().st_mode & 0o777 == 0o755
    assert data.parent.stat().st_mode & 0o777 == 0o700


def test_a_slot_is_never_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "slots" / SLOT).mkdir(parents=True)
    (tmp_path / "slots" / SLOT / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError):
        make(tmp_path)


def test_the_visible_link(tmp_path: Path) -> None:
    data = make(tmp_path)
    root = tmp_path / "session-workspaces"
    link = show(root, "build", data, tmp_path / "slots")
    assert link == root / "build"
    assert link.resolve() == data.resolve()
    assert not Path(os.readlink(link)).is_absolute()
    assert show(root, "build", data, tmp_path / "slots") == link
    hide(root, "build", tmp_path / "slots")
    hide(root, "build", tmp_path / "slots")
    assert list(root.iterdir()) == []


def test_a_link_of_an_earlier_slot_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "visible"
    show(root, "build", make(tmp_path, "f" * 16), tmp_path / "slots")
    data = make(tmp_path)
    assert show(root, "build", data, tmp_path / "slots").resolve() == data.resolve()
    assert [path.name for path in root.iterdir()] == ["build"]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_not_ours_stays(tmp_path: Path, kind: str) -> None:
    data = make(tmp_path)
    root = tmp_path / "visible"
    root.mkdir()
    if kind == "file":
        (root / "build").write_text("x")
    elif kind == "directory":
        (root / "build").mkdir()
    else:
        (root / "build").symlink_to(tmp_path)
    with pytest.raises(ConflictError):
        show(root, "build", data, tmp_path / "slots")
    hide(root, "build", tmp_path / "slots")
    assert os.path.lexists(root / "build")


def test_workspaces_of_earlier_versions_count_with_their_size() -> None:
    """The size is the limit of the latest session, which may be less than its level's limit."""
    level = json.dumps({"limits": {"workspace_bytes": 1000}})
    sessions = [("a", "{}", "2025"), ("b", "{}", "2025"), ("b", '{"workspace_bytes": 300}', "2026")]
    with closing(sqlite3.connect(":memory:")) as conn:
        for script in sorted(MIGRATIONS.glob("*.sql")):
            if script.stem.endswith("workspace_size"):
                for number, name in enumerate("abc"):
                    conn.execute(
                        "INSERT INTO workspaces (id, owner, uid, slot, created_at)"
                        " VALUES (?, 'ci', ?, ?, '')",
                        (name, number, name),
                    )
                for number, (name, limits, created_at) in enumerate(sessions):
                    conn.execute(
                        "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
                        " image, limits, idle_timeout, created_at)"
                        " VALUES (?, ?, 'ci', 'completed', 'low', ?, '', ?, 1, ?)",
                        (str(number), name, level, limits, created_at),
                    )
            conn.executescript(script.read_text(encoding="utf-8"))
        found = dict(conn.execute("SELECT id, size FROM workspaces"))
        assert found == {"a": 1000, "b": 300, "c": 0}
        assert holdings(conn, "ci") == (3, 1300)
