"""The boundaries of a session: its workspace's name and place, its level, the files API."""

import os
import secrets
from pathlib import Path

import pytest

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.requests import NewSession
from tests.support.attack import Attacks, assert_well
from tests.support.attempts import attempt, spellings
from tests.support.box import TESTER, Box, mount_options

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = Principal("client", Role.OPERATOR)


def tree(directory: Path) -> list[str]:
    """All files below the directory, where a session id could have created some."""
    return sorted(
        os.path.join(root, name) for root, _, names in os.walk(directory) for name in names
    )


@spellings(
    (
        ".",
        "..",
        "...",
        "../evil",
        "../../../../tmp/evil",
        "/tmp/evil",
        "a/../../evil",
        "a/b",
        "a\\b",
        ".hidden",
        "-option",
        "a b",
        "a\nb",
        "a\0b",
        "%2e%2e",
        "%2F",
        "é",
    ),
    text="a session id that names another directory than its own",
    layer="control plane",
)
async def test_id(attacks: Attacks, level: str, name: str) -> None:
    state_dir = attacks.plane.settings.state_dir
    before = tree(state_dir / "slots"), tree(state_dir / "session-workspaces")
    with pytest.raises(ValidationError):
        await Box.create(attacks.plane, level, id=name)
    assert (tree(state_dir / "slots"), tree(state_dir / "session-workspaces")) == before
    assert not (state_dir.parent / "evil").exists()
    assert not Path("/tmp/evil").exists()


@attempt("another id that only differs by its case, for the same files", layer="control plane")
async def test_case_of_ids(attacks: Attacks, level: str) -> None:
    name = f"Case-{secrets.token_hex(8)}"
    first = await Box.create(attacks.plane, level, id=name)
    await first.write("private", b"private")
    for other in (name.lower(), name.upper()):
        with pytest.raises(ConflictError):
            await Box.create(attacks.plane, level, id=other)
    assert await first.read("private") == b"private"
    await first.close()


@attempt("another owner's workspace, by its id", layer="control plane")
async def test_ids_of_others(attacks: Attacks, level: str) -> None:
    first = await Box.create(attacks.plane, level, id=f"owned-{secrets.token_hex(4)}")
    await first.write("private", b"private")
    with pytest.raises(ConflictError):
        await attacks.plane.sessions.create(CLIENT, _new(first.session.id, level))
    await attacks.plane.sessions.close(TESTER, first.session, purge=False)
    with pytest.raises(ConflictError):  # kept files still belong to their owner
        await attacks.plane.sessions.create(CLIENT, _new(first.session.id, level))
    await attacks.plane.sessions.purge(TESTER, first.session.id)


@spellings(
    ("/", "/etc", "..", "/var/run/docker.sock", "/workspace/../..", "\0", ""),
    text="a client that names a host directory as its workspace",
    layer="control plane",
)
async def test_root_dir(attacks: Attacks, level: str, name: str) -> None:
    box = await attacks.box(level)
    before, place = mount_options(box.agent()), box.session.root_dir
    wish = {"root_dir": name, "mode": "host"}
    with pytest.raises(ValidationError, match="can't be changed"):
        await attacks.plane.sessions.changes.set_level(TESTER, box.session, None, wish)
    assert box.session.root_dir == place
    assert mount_options(box.agent()) == before
    (event,) = (await box.events("session.settings"))[-1:]
    assert event["decision"] == "deny"
    assert event["args"]["workspace"].keys() == wish.keys()
    await assert_well(box)


@spellings(
    (
        "/workspace/../etc/evil",
        "/workspacex/evil",
        "/workspace-evil",
        "../evil",
        "sub/../../evil",
        "/etc/evil",
        "/",
        "..",
        "//tmp/evil",
        "out/evil",
        "out/../evil",
        "up/evil",
    ),
    text="a path outside of the workspace for the files API to write to, links included",
    layer="control plane, agent",
)
async def test_write(attacks: Attacks, tmp_path: Path, level: str, name: str) -> None:
    box = await attacks.box(level)
    for link, target in (("out", str(tmp_path)), ("up", "..")):
        (box.workspace / link).unlink(missing_ok=True)
        (box.workspace / link).symlink_to(target)
    tmp_path.chmod(0o777)
    for mode in ("overwrite", "append"):
        # As text, `out/..` is the workspace; high may write to its sandbox's own /tmp.
        if name == "out/../evil" or (level == "high" and name == "//tmp/evil"):
            await box.write(name, b"x", mode=mode)
            continue
        with pytest.raises(PermissionDeniedError):
            await box.write(name, b"x", mode=mode)
    assert list(tmp_path.iterdir()) == []
    assert not (box.workspace.resolve().parent / "evil").exists()
    assert not any(Path(there).exists() for there in ("/etc/evil", "/tmp/evil"))


def _new(workspace_id: str, level: str) -> NewSession:
    return NewSession(id=workspace_id, permission_level=level)


# Levels


@attempt("work at high that continues after the session was lowered", layer="control plane")
async def test_lowered(attacks: Attacks) -> None:
    box = await Box.create(attacks.plane, "high")
    for name, content in attacks.arsenal.payloads.items():
        await box.write(name, content)
    await box.bash("chmod 755 payload && ./payload && rm marker")  # high allows it
    daemons = await box.start(argv=["attack-hogs", "daemons"], background=True)
    waiting = await box.start(argv=["attack-hogs", "waiting"], background=True)
    await box.printed(waiting, "waiting")
    await box.finish(daemons)
    await attacks.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    assert box.processes() == []
    (box.workspace / "go").touch()
    for argv in (["./payload"], ["bash", "-c", "./payload"], ["uname"]):
        with pytest.raises(PermissionDeniedError):
            await box.run(argv=argv)
    done = await box.run(argv=["attack-execs", "own", "/workspace"])
    assert "+" not in {line[:1] for line in done.stdout.splitlines()}
    assert not (box.workspace / "marker").exists()
    interfaces = Path(f"/proc/{box.agent().pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    assert (await box.container()).limits["memory_bytes"] == 256 * 2**20
    await assert_well(box)
    await box.close()
