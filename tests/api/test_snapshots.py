"""Snapshots over HTTP: a session moves to another control plane, or nothing does."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.base import LABEL_IMAGE, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.operate.snapshots.archive import END, PartFacts, head, header, padding
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.operator_models import OperatorModel
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from paddock import Paddock
from paddock.client.errors import ConflictError
from paddock.contract.words import Kind
from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, OTHER_KEY, Api, served
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.models import Answer, calling, model_server

pytestmark = pytest.mark.slow

BOX = "/api/sessions/box"
TAKE, RESTORE = f"{BOX}/snapshot", "/api/sessions/restore"
POLICY: dict[str, Any] = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}
PROGRAM = "(define (twice x) (* 2 x)) (assert (list 'found \"it\")) (memo 'key (twice 21))"


@pytest.fixture
async def fresh(settings: Settings, state_dir: Path, agents: Agents) -> AsyncIterator[Api]:
    """Another control plane, with a state directory of its own and the same keys."""
    state = state_dir / "fresh"
    paths = {"state_dir": state, "workspaces_dir": state / "session-workspaces"}
    images = {IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})}
    engine = FakeEngine(images=images, on_start=agents.start, on_stop=agents.stop)
    plane = await ControlPlane.open(settings.model_copy(update=paths), engine)
    async with served(plane, engine, agents) as api:
        yield api
    await plane.close()


def only(api: Api) -> Session:
    (session,) = api.plane.sessions.registry.live
    return session


def put(session: Session, top: Path, name: str, text: str) -> None:
    path = top / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    for each in (path, path.parent) if path.parent != top else (path,):
        os.chown(each, session.workspace.uid, session.workspace.uid)


async def seeded(api: Api, **members: Any) -> Session:
    """A session in proposal mode with files, turns, and staged changes of all kinds."""
    await api.session(id="box", policy=POLICY, key=OPERATOR_KEY, **members)
    session = only(api)
    for name, text in (("kept", "1"), ("gone", "2"), ("dir/old", "3"), ("sub/x", "4")):
        put(session, Path(session.root_dir), name, text)
    await api.json("POST", f"{BOX}/proposals/rollback")  # a new mount of them
    return session


async def staged(api: Api, session: Session) -> None:
    await api.json("POST", f"{BOX}/turns", json={"code": PROGRAM}, key=OPERATOR_KEY)
    assert session.sandbox is not None
    mount = session.sandbox.directory.workspace
    put(session, mount, "new", "new\n")
    put(session, mount, "kept", "changed\n")
    (mount / "gone").unlink()
    (mount / "dir" / "old").unlink()
    (mount / "dir").rmdir()
    put(session, mount, "dir/other", "o")
    put(session, mount, "sub/y", "y")
    (mount / "sub").chmod(0o555)


async def taken(api: Api, key: str = OPERATOR_KEY) -> bytes:
    response = await api.call("POST", TAKE, key=key)
    assert response.status == 200, await response.text()
    return await response.read()


def again(archive: bytes, change: Callable[[dict[str, Any]], None], **parts: bytes) -> bytes:
    """The archive with another manifest, and other parts, whose digests are right."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    manifest = json.loads(found["snapshot.json"])
    found |= {f"{name}.tar": data for name, data in parts.items()}
    listed = []
    for part in manifest["parts"]:
        data = found[part["name"]]
        listed.append((PartFacts(part["name"], len(data), hashlib.sha256(data).hexdigest()), data))
    manifest["parts"] = [facts._asdict() for facts, _ in listed]
    change(manifest)
    told = head(json.dumps(manifest).encode())
    for facts, data in listed:
        told += header(facts.name, facts.size) + data + padding(facts.size)
    return told + END


async def test_what_was_said_and_what_waits_move_too(api: Api, fresh: Api) -> None:
    await seeded(api)
    async with model_server(calling(("read_file", {"path": "kept"})), Answer("done")) as server:
        model = OperatorModel.model_validate(server.setting())
        for each in (api, fresh):
            each.plane.models.configured["small"] = model
        said = {"messages": [{"content": "x" * 60_000}]}
        assert (await api.json("POST", f"{BOX}/send", json=said))["text"] == "done"
        await api.json("POST", f"{BOX}/queue", json={"messages": [{"content": "go on"}]})
        archive = await taken(api)
        await fresh.json("POST", RESTORE, data=archive, key=OPERATOR_KEY, status=201)
        before, after = [await each.json("GET", f"{BOX}/timeline") for each in (api, fresh)]
        assert after == before
        roles = [each["role"] for each in after["items"]]
        assert roles == ["user", "assistant", "tool", "assistant"]
        await fresh.json("POST", f"{BOX}/render", json={})
        assert [each["content"] for each in server.bodies[-1]["messages"]][-2:] == ["done", "go on"]
    for change, field in (
        ({"timeline": [*json.loads(_manifest(archive))["timeline"]] * 2}, "timeline"),
        ({"timeline": [{"seq": 1}]}, "timeline.0"),
        ({"queued": ["x"] * 101}, "queued"),
    ):
        bad = again(archive, lambda manifest, change=change: manifest.update(change))  # type: ignore[misc]
        problem = await fresh.problem(400, "validation_error", "POST", RESTORE, data=bad)
        assert problem["field"].startswith(field)


def _manifest(archive: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = tar.extractfile("snapshot.json")
        assert found is not None
        return found.read()


async def test_a_session_moves_to_a_fresh_control_plane(api: Api, fresh: Api) -> None:
    session = await seeded(api, budget={"iterations": 3, "tokens": 1000}, labels={"a": "b"})
    await staged(api, session)
    await api.json("POST", f"{BOX}/usage", json={"tokens": 400, "cost": 0.1}, key=OPERATOR_KEY)
    archive = await taken(api)
    before = [await api.json("GET", f"{BOX}/{part}") for part in ("proposals", "turns")]
    assert {item["ref"] for item in before[0]["items"]} > {"new", "kept", "gone", "dir"}
    created = await fresh.json("POST", RESTORE, data=archive, key=OPERATOR_KEY, status=201)
    assert (created["id"], created["owner"], created["labels"]) == ("box", "operator", {"a": "b"})
    assert created["handle"]
    assert created["created_at"] == session.created_at
    assert created["policy"]["sha256"] == session.policy.sha256
    after = [await fresh.json("GET", f"{BOX}/{part}") for part in ("proposals", "turns")]
    for item in (*before[0]["items"], *after[0]["items"]):
        del item["timestamp"]  # files are as old as the restore
    assert after == before
    budget = await fresh.json("GET", f"{BOX}/budget")
    assert (budget["remaining"]["iterations"], budget["remaining"]["tokens"]) == (2, 600)
    assert budget["consumed"]["cost"] == 0.1
    old = await api.json("GET", f"{BOX}/budget")
    assert budget["consumed"]["audit_bytes"] >= old["consumed"]["audit_bytes"] - 2000
    # What its programs remember.
    turn = await fresh.json(
        "POST", f"{BOX}/turns", json={"code": "(list (twice 4) (facts) (memo 'key 1))"}
    )
    assert turn["turn_number"] == 2
    assert turn["outcome"]["value"][0] == 8
    assert turn["outcome"]["value"][1] == [["found", "it"]]
    await fresh.json("POST", f"{BOX}/proposals/commit", json={})
    root = Path(only(fresh).root_dir)
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) == [
        *("dir/other", "kept", "new", "sub/x", "sub/y"),
    ]
    assert (root / "kept").read_text() == "changed\n"
    audit = await fresh.json("GET", f"{BOX}/audit")
    first = audit["items"][0]
    digest = hashlib.sha256(
        tarfile.open(fileobj=io.BytesIO(archive)).extractfile("snapshot.json").read()  # type: ignore[union-attr]  # noqa: SIM115
    ).hexdigest()
    assert (first["operation"], first["args"]["snapshot"]["sha256"]) == ("session.create", digest)
    audit = await api.json("GET", f"{BOX}/audit?operation=session.snapshot")
    assert audit["items"][0]["args"]["sha256"] == digest
    # A second time, live or ended, it is known.
    await fresh.problem(409, "conflict", "POST", RESTORE, data=archive, key=OPERATOR_KEY)
    await fresh.json("DELETE", BOX, params={"purge": "true"})
    await fresh.problem(409, "conflict", "POST", RESTORE, data=archive, key=OPERATOR_KEY)


def nothing_of(api: Api) -> bool:
    """Whether the control plane has neither a session nor files of one."""
    state = api.plane.settings.state_dir
    slots = list((state / "slots").iterdir()) if (state / "slots").exists() else []
    return not api.plane.sessions.registry.live and not slots


async def test_what_is_altered_or_may_not_be_creates_nothing(api: Api, fresh: Api) -> None:
    session = await seeded(api)
    await staged(api, session)
    archive = await taken(api)

    async def refused(data: bytes, field: str, status: int = 400, key: str = OPERATOR_KEY) -> None:
        code = "too_large" if status == 413 else "validation_error"
        problem = await fresh.problem(status, code, "POST", RESTORE, data=data, key=key)
        assert problem.get("field") == field, problem
        assert nothing_of(fresh)

    await refused(archive[:-1], "archive")
    await refused(archive + b"x", "archive")
    await refused(b"", "archive")
    await refused(b"x" * 600, "snapshot.json")
    at = archive.index(b"changed\n")
    await refused(archive[:at] + b"CHANGED\n" + archive[at + 8 :], "staged.tar")
    at = archive.index(b'"version":1')
    await refused(archive[: at + 10] + b"2" + archive[at + 11 :], "snapshot.json")

    def with_(**members: Any) -> bytes:
        return again(archive, lambda manifest: manifest.update(members))

    def asking(**members: Any) -> bytes:
        return again(archive, lambda manifest: manifest["session"].update(members))

    await refused(with_(version=2), "version")
    await refused(with_(consumed={"tokens": -1}), "consumed.tokens")
    await refused(with_(consumed={"time": 1}), "consumed")
    await refused(with_(created_at="2999-01-01T00:00:00.000000Z"), "created_at")
    await refused(with_(notes={"environment": "(", "facts": [], "memos": []}), "notes")
    await refused(with_(notes={"environment": "", "facts": [{"a": 1}], "memos": []}), "notes")
    await refused(with_(status="completed"), "status")
    await refused(with_(parts=[]), "parts")
    await refused(asking(permission_level="none"), "permission_level")
    await refused(asking(image="other:latest"), "image")
    await refused(asking(mounts=["none"]), "mounts")
    await refused(asking(policy="SAFE_ANALYSIS"), "session.policy")
    await refused(asking(secrets={"SECRET_A": "12345678"}), "session")
    await refused(asking(id="../up"), "id")


def hostile(kind: bytes, name: str, target: str = "") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry.tobuf() + END


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (hostile(tarfile.SYMTYPE, "out", "/etc/passwd"), "out"),
        (hostile(tarfile.SYMTYPE, "out", "../up"), "out"),
        (hostile(tarfile.REGTYPE, "../up"), "up"),
        (hostile(tarfile.REGTYPE, "/abs"), "abs"),
        (hostile(tarfile.CHRTYPE, "device"), "device"),
        (hostile(tarfile.LNKTYPE, "hard", "/etc/passwd"), "passwd"),
        (b"x" * 2048, "workspace.tar"),
        (b"", "cut"),
    ],
)
async def test_hostile_trees_are_refused_and_leave_nothing(
    api: Api, fresh: Api, tree: bytes, said: str
) -> None:
    await seeded(api)
    whole = await taken(api)
    archive = again(whole, lambda manifest: None, workspace=tree)
    problem = await fresh.problem(
        400, "validation_error", "POST", RESTORE, data=archive, key=OPERATOR_KEY
    )
    assert said in problem["detail"]
    assert nothing_of(fresh)
    # A failure does not use up the id.
    await fresh.json("POST", RESTORE, data=whole, key=OPERATOR_KEY, status=201)


async def test_who_may_and_when(api: Api) -> None:
    created = await api.session(id="box", key=OPERATOR_KEY)
    for key, status, code in (
        (created["handle"], 403, "permission_denied"),
        (OTHER_KEY, 404, "not_found"),
    ):
        await api.problem(status, code, "POST", TAKE, key=key)
    archive = await taken(api, ADMIN_KEY)
    await api.problem(
        403, "permission_denied", "POST", RESTORE, data=archive, key=created["handle"]
    )
    await api.problem(409, "conflict", "POST", RESTORE, data=archive)
    await api.json("POST", f"{BOX}/exec", json={"argv": ["pwd"]})
    await api.json("POST", f"{BOX}/pause")
    await api.problem(409, "invalid_transition", "POST", TAKE)
    await api.json("POST", f"{BOX}/resume")
    with only(api).using():
        await api.problem(409, "busy", "POST", TAKE)
    with api.plane.snapshots._place(Principal("admin", Role.ADMIN)):
        await api.problem(503, "capacity_exhausted", "POST", TAKE)
    await api.json("DELETE", BOX)
    await api.problem(410, "session_terminated", "POST", TAKE)


async def test_the_client_and_the_command_line(api: Api, fresh: Api, tmp_path: Path) -> None:
    await seeded(api, permission_level="medium", egress={"deny": [{"host": "a.example.org"}]})
    file, seen = tmp_path / "box.tar", list[int]()
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get("box")
        count = await session.snapshot(file, progress=seen.append)
    assert (count, seen[-1], file.stat().st_mode & 0o777) == (file.stat().st_size, count, 0o600)
    async with Paddock(str(fresh.server.make_url("")), OPERATOR_KEY) as paddock:
        made = await paddock.restore(file)
        assert (made.id, made.handle is not None) == ("box", True)
        with pytest.raises(ConflictError):
            await paddock.restore(file)
    assert only(fresh).own_rules.only == only(api).own_rules.only


async def test_the_command_line_moves_a_session(
    api: Api, fresh: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seeded(api)
    file = tmp_path / "box.tar"
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    saved = await run_beside("sessions", "snapshot", "box", str(file))
    assert (saved.status, str(file) in saved.line) == (0, True), saved.err
    taken = await run_beside("sessions", "restore", str(file))
    assert (taken.status, "box exists" in taken.line) == (1, True), taken.err
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{fresh.server.port}")
    made = await run_beside("sessions", "restore", str(file))
    assert (made.status, made.out.split()) == (0, ["box"]), made.err
    file.write_bytes(file.read_bytes()[:-600])
    assert "snapshot" in (await run_beside("sessions", "restore", str(file))).line


async def test_one_file_serves_many_times_under_other_ids(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await seeded(api, budget={"iterations": 5, "time": 3600})
    await staged(api, source)
    assert source.budget.used(Kind.ITERATIONS) > 0
    file = tmp_path / "box.tar"
    file.write_bytes(await taken(api))
    async with Paddock(str(api.server.make_url("")), OPERATOR_KEY) as paddock:
        with pytest.raises(ConflictError):
            await paddock.restore(file)
        made = [(await paddock.restore(file, id=f"box-{number}")).id for number in range(2)]
        with pytest.raises(ConflictError):
            await paddock.restore(file, id="box-1")
    assert made == ["box-0", "box-1"]
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    assert (await run_beside("sessions", "restore", str(file), "--id", "box-2")).status == 0
    live = {session.id: session for session in api.plane.sessions.registry.live}
    for name in (*made, "box-2"):
        session = live[name]
        assert session.budget.limits == source.budget.limits
        assert (session.budget.used(Kind.ITERATIONS), session.created_at > source.created_at) == (
            *(0,),
            True,
        )
        assert (Path(session.root_dir) / "kept").read_text() == "1"
        listed = await api.json("GET", f"/api/sessions/{name}/proposals")
        assert {item["ref"] for item in listed["items"]} >= {"new", "kept", "gone"}
        first = (await api.json("GET", f"/api/sessions/{name}/audit?limit=1"))["items"][0]
        assert first["args"]["snapshot"]["session_id"] == "box"
    await api.problem(400, "validation_error", "POST", f"{RESTORE}?id=a/b", data=file.read_bytes())
