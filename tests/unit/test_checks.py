"""The doctor's conclusions from its findings."""

import asyncio
import errno
import http.server
import os
import shutil
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from orchestrator.ground.check import Check, CheckStatus, failure, healthy, ok, warning
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.store.database import Database
from orchestrator.host.engine.base import (
    LABEL_IMAGE,
    LABEL_INPUTS,
    LABEL_PROTOCOL,
    EngineInfo,
    Image,
)
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node import mounts
from orchestrator.host.node.base import Resources
from orchestrator.host.node.kernel import (
    KernelFacts,
    check_prompts,
    facilities_check,
    kernel_facts,
    landlock_check,
    seccomp_check,
)
from orchestrator.host.node.mounts import (
    MountPoint,
    UnseenMountsError,
    apart,
    check_mounts,
    check_proc,
    check_propagation,
    existing,
    mount_of,
    propagation_check,
)
from orchestrator.host.node.requirements import Facts
from orchestrator.host.workspace.quota import Choice, Quota
from orchestrator.operate.checks import doctor
from orchestrator.operate.checks import engine as checks_engine
from orchestrator.operate.checks.doctor import run_checks
from orchestrator.operate.checks.engine import (
    check_open_network,
    engine_check,
    image_check,
    level_images_check,
)
from orchestrator.operate.checks.guard import check_guard
from orchestrator.operate.checks.host import check_port, clock_check, disk_check, memory_check
from orchestrator.operate.checks.levels import enforceable, level_checks
from orchestrator.operate.checks.network import Tried
from orchestrator.operate.checks.quota import check_quota, quota_check
from orchestrator.operate.checks.recovery import recovery_check
from orchestrator.operate.checks.state import check_database, check_policy, check_state_dir
from orchestrator.rules.policy.levels import _PACKAGED, load_levels
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import UNKNOWN_KERNEL, without
from tests.support.kernels import FULL_KERNEL, KERNEL_6_1
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS

GIB = 1024**3
FACTS = Facts(FULL_KERNEL, mounts=True, quota=True)
INFO = EngineInfo("24.0.7", "2", rootless=False, userns_remap=False)
IMAGE = Image("sha256:1", {LABEL_IMAGE: "sandbox", LABEL_INPUTS: "abc"})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        listen="127.0.0.1:0",
        state_dir=tmp_path / "state",
        admin_key=SecretStr("the-admin-key-of-tests"),
        min_free_memory_bytes=0,
        min_free_disk_bytes=0,
    )


def status(check: Check) -> str:
    """The check's status; every status but ok must come with a remedy."""
    assert (check.remedy is None) == (check.status is CheckStatus.OK)
    assert check.detail
    return str(check.status)


@pytest.mark.parametrize(
    ("info", "expected", "detail"),
    [
        (INFO, "ok", "version 24.0.7, cgroup 2"),
        (replace(INFO, version="20.10.24+dfsg1"), "ok", "20.10"),
        (replace(INFO, version="19.03.1"), "warning", "19.03"),
        (replace(INFO, version="dev"), "ok", "dev"),
        (replace(INFO, rootless=True), "failure", "rootless"),
        (replace(INFO, userns_remap=True), "failure", "userns-remap"),
        (replace(INFO, podman=True, version="4.3.1"), "failure", "Podman is not supported"),
        (replace(INFO, selinux=True), "failure", "SELinux labels"),
        (replace(INFO, seccomp=False), "failure", "without a system call filter"),
        (replace(INFO, containerd_images=True), "ok", "cgroup 2, containerd image store"),
        (replace(INFO, unlimited=("memory", "pids")), "failure", "memory, pids"),
    ],
)
def test_engine(info: EngineInfo, expected: str, detail: str) -> None:
    check = engine_check(info)
    assert status(check) == expected
    assert detail in check.detail


def test_an_engine_that_can_not_load_its_profile() -> None:
    confining = replace(INFO, apparmor=True)
    assert status(engine_check(confining, parser=True)) == "ok"
    assert status(engine_check(INFO, parser=False)) == "ok"
    check = engine_check(confining, parser=False)
    assert status(check) == "failure"
    assert "apparmor_parser is missing" in check.detail


async def test_the_parser_of_profiles_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Confining(FakeEngine):
        async def info(self) -> EngineInfo:
            return replace(INFO, apparmor=True)

    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    for contained, expected in ((True, "ok"), (False, "failure")):
        monkeypatch.setattr(checks_engine, "apart", lambda _mounts, found=contained: found)
        assert status(await checks_engine.check_engine(Confining())) == expected
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/sbin/{name}")
    assert status(await checks_engine.check_engine(Confining())) == "ok"


def test_a_runtime_of_the_engine() -> None:
    info = replace(INFO, runtimes=("runc", "runsc"))
    assert status(engine_check(info, "runsc")) == "ok"
    assert status(engine_check(info, "io.containerd.runsc.v1")) == "ok"
    check = engine_check(info, "kata")
    assert status(check) == "failure"
    told = "version 24.0.7, cgroup 2: the engine has no runtime kata, only runc, runsc"
    assert check.detail == told


@pytest.mark.parametrize(
    ("image", "inputs", "expected"),
    [
        (IMAGE, None, "ok"),
        (IMAGE, "abc", "ok"),
        (IMAGE, "abd", "warning"),
        (None, "abc", "failure"),
        (Image("sha256:1", {}), None, "failure"),
        (Image("sha256:1", {LABEL_PROTOCOL: "0"}), None, "ok"),  # an earlier version built it
    ],
)
def test_image(image: Image | None, inputs: str | None, expected: str) -> None:
    assert status(image_check("paddock/sandbox:latest", image, inputs)) == expected


def test_default_images_of_levels() -> None:
    """Those that are missing are built by themselves, or the remedy names the way."""
    dev, own = "paddock/dev:latest", "team/reports:2"
    current = Image("sha256:1", {LABEL_IMAGE: "sandbox"})
    there = level_images_check({"high": dev}, {dev: current})
    assert (there.status, there.detail) == ("ok", f"high: {dev}")
    missing = level_images_check({"high": dev}, {})
    assert missing.status == "ok"
    assert "sessions get another image" in missing.detail
    assert "`paddock images build dev`" in missing.detail
    added = level_images_check({"low": own}, {own: Image("sha256:2", {})})
    assert (added.status, added.detail) == ("ok", f"low: {own}")
    foreign = level_images_check({"high": dev, "low": own}, {dev: current})
    assert foreign.status == "warning"
    assert foreign.detail.startswith(f"{own}, the default of low,")
    assert f"`docker pull {own}`" in (foreign.remedy or "")


async def test_the_open_network_is_tried_and_removed() -> None:
    engine = FakeEngine()
    assert await check_open_network(engine, "image") == Tried(None)
    assert not engine.open_network
    assert "try_link" not in engine.calls
    engine.fail_next("try_link")
    assert await check_open_network(engine, "image", rates=True) == Tried("try_link failed")
    engine.fail_next("ensure_open_network")
    engine.fail_next("remove_open_network")
    assert await check_open_network(engine, "image") == Tried("remove_open_network failed")


@pytest.mark.parametrize(
    ("abi", "error", "expected"),
    [
        (7, 0, "ok"),
        (6, 0, "ok"),
        (5, 0, "warning"),
        (0, errno.ENOSYS, "failure"),
        (0, errno.EOPNOTSUPP, "failure"),
    ],
)
def test_landlock(abi: int, error: int, expected: str) -> None:
    assert (
        status(landlock_check(KernelFacts("6.1", FULL_KERNEL._replace(landlock=abi), error, 0)))
        == expected
    )


@pytest.mark.parametrize(
    ("scope", "calls", "found"),
    [
        (None, True, "ok"),
        ("0\n", True, "ok"),
        ("1\n", True, "ok"),
        ("2\n", True, "warning"),
        ("3\n", True, "warning"),
        ("?", True, "warning"),
        ("1\n", False, "warning"),
    ],
)
def test_prompts_that_can_not_be_told_from_sleep(
    tmp_path: Path, scope: str | None, calls: bool, found: str
) -> None:
    yama = tmp_path / "sys/kernel/yama"
    yama.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    if calls:
        (tmp_path / "self/syscall").touch()
    if scope is not None:
        (yama / "ptrace_scope").write_text(scope)
    check = check_prompts(tmp_path)
    assert status(check) == found
    assert ("only sleeps" in check.detail) == (found == "warning")


def test_seccomp() -> None:
    assert status(seccomp_check(KernelFacts("6.1", FULL_KERNEL, 0, 0))) == "ok"
    assert (
        status(seccomp_check(KernelFacts("4.9", UNKNOWN_KERNEL, 0, errno.EOPNOTSUPP))) == "failure"
    )


def test_what_is_decided_by_older_means_is_told() -> None:
    assert facilities_check(FULL_KERNEL).status is CheckStatus.OK
    old = facilities_check(KERNEL_6_1._replace(landlock=9))
    assert old.status is CheckStatus.OK
    assert old.detail == "writable code: the system call filter (kernel before 6.3)"
    older = facilities_check(without(FULL_KERNEL, ["undisturbed"]))
    assert older.status is CheckStatus.WARNING
    assert older.detail == (
        "reads of a pack or a manifest: nothing (kernel before 5.19): "
        "sessions with a pack or a manifest are refused"
    )
    assert older.remedy == "use a kernel of 5.19 or later for what is refused"


def test_this_kernel_answers() -> None:
    facts = kernel_facts()
    assert facts.release == os.uname().release
    assert (facts.kernel.landlock > 0) == (facts.landlock_error == 0)


@pytest.mark.parametrize(
    ("quota", "expected"), [("image", "ok"), ("project", "warning"), ("none", "warning")]
)
def test_what_holds_workspaces(quota: str, expected: str) -> None:
    check = quota_check(Choice(Quota(quota), ("better: /is/missing",)))
    assert status(check) == expected
    assert ("/is/missing" in check.detail) == (expected != "ok")
    public = quota_check(Choice(Quota(quota), ("better: /is/missing",)), reasons=False)
    assert "/is/missing" not in public.detail


def test_a_quota_that_is_demanded_is_a_failure_where_it_can_not_be(settings: Settings) -> None:
    demanded = settings.model_copy(update={"workspace_quota": "project"})
    check = check_quota(demanded)
    assert status(check) == "failure"
    assert "PADDOCK_WORKSPACE_QUOTA: project" in check.detail
    unset = settings.model_copy(update={"workspace_quota": "none"})
    assert "it is set so" in check_quota(unset).detail


MOUNTINFO = b"""\
21 1 0:20 / / rw,relatime - ext4 /dev/vda rw
30 21 0:30 / /srv rw,noexec shared:7 master:1 - xfs /dev/vdb rw
31 30 0:31 / /srv/a\\040b rw,nosuid,nodev,noexec shared:9 - xfs /dev/vdb rw
32 30 0:32 / /srv/a\\040b rw,nosuid - tmpfs tmpfs rw
33 21 0:33 / /some\rbody rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "point", "shared", "kind"),
    [
        ("/etc", "/", False, "ext4"),
        ("/srv", "/srv", True, "xfs"),
        ("/srvx", "/", False, "ext4"),
        ("/srv/a b/c", "/srv/a b", False, "tmpfs"),
    ],
)
def test_the_mount_of_a_path(path: str, point: str, shared: bool, kind: str) -> None:
    mount = mount_of(MOUNTINFO, path)
    assert (mount.point, mount.shared, mount.type) == (point, shared, kind)


def test_a_mountinfo_without_the_path() -> None:
    with pytest.raises(UnseenMountsError, match="no mount contains /x: this is a chroot"):
        mount_of(b"", "/x")
    # The programs of the machine can't be seen there.
    assert apart(b"")


@pytest.mark.parametrize("mountinfo", [b"", b"31 1 0:5 / /proc rw - proc proc rw\n"])
def test_a_chroot_without_mounts_is_told(
    mountinfo: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "own_mounts", lambda: mountinfo)
    check = check_propagation(tmp_path)
    assert status(check) == "failure"
    assert f"no mount contains {tmp_path.resolve()}" in check.detail
    assert "mount --bind DIR DIR" in (check.remedy or "")
    if os.geteuid() == 0:
        assert status(check_mounts(tmp_path)) == "failure"


async def test_without_processes_nothing_else_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(check_proc()) == "ok"
    monkeypatch.setattr(doctor, "check_proc", lambda: check_proc(tmp_path))
    (check,) = await run_checks(Settings(state_dir=tmp_path / "state"), engine=FakeEngine())
    assert (status(check), check.remedy) == ("failure", f"mount -t proc proc {tmp_path}")
    assert check.detail == f"{tmp_path} is not mounted, so nothing can be examined"


def test_propagation_matters_in_a_container() -> None:
    private = MountPoint("/state", frozenset(), shared=False, type="ext4")
    assert status(propagation_check(private, apart=False)) == "ok"
    assert status(propagation_check(private, apart=True)) == "failure"
    assert status(propagation_check(replace(private, shared=True), apart=True)) == "ok"


def test_mounts_are_tried_for_real(tmp_path: Path) -> None:
    check = check_mounts(tmp_path / "not" / "there")
    assert status(check) == ("ok" if os.geteuid() == 0 else "failure")
    assert os.listdir(tmp_path) == []
    assert existing(tmp_path / "a" / "b") == tmp_path


def test_state_directory() -> None:
    # In a short path: pytest's own directory may already be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="pdk-") as name:
        look_at_state_directories(Path(name))


def look_at_state_directories(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert status(check_state_dir(path)) == "ok"
    path.mkdir(mode=0o700)
    assert status(check_state_dir(path)) == "ok"
    path.chmod(0o750)
    check = check_state_dir(path)
    assert (status(check), check.remedy) == ("failure", f"chmod 700 {path}")
    path.chmod(0o700)
    os.chown(path, 12345, 12345)
    assert "12345" in check_state_dir(path).detail
    (tmp_path / "file").write_text("")
    assert status(check_state_dir(tmp_path / "file")) == "failure"
    assert status(check_state_dir(tmp_path / "file" / "below")) == "failure"
    assert "too long" in check_state_dir(tmp_path / ("x" * 64)).detail


async def test_a_whole_database_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "paddock.db"
    assert status(check_database(path, 5).check) == "ok"
    database = await Database.open(path)
    await database.write(
        lambda connection: (
            connection.execute(
                "INSERT INTO events (session_key, seq, time, operation, body, prev_hash, hash)"
                " VALUES ('system', 1, '2026-01-02T03:04:05.000006Z', 'recovery', '{}', '', '')"
            )
            and None
        )
    )
    stored = check_database(path, 5)  # while it is in use
    assert status(stored.check) == "ok"
    assert stored.last_event == "2026-01-02T03:04:05.000006Z"
    assert stored.recovery is not None
    assert "malformed" in stored.recovery.detail
    await database.close()
    before = sorted(os.listdir(tmp_path))
    assert status(check_database(path, 5).check) == "ok"
    assert sorted(os.listdir(tmp_path)) == before == ["paddock.db"]


async def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "paddock.db"
    await (await Database.open(path)).close()
    data = bytearray(path.read_bytes())
    data[4096 + 8 : 4096 * 3] = os.urandom(4096 * 2 - 8)
    path.write_bytes(data)
    assert status(check_database(path, 5).check) == "failure"
    path.write_bytes(b"this is no database at all" * 100)
    assert status(check_database(path, 5).check) == "failure"


async def test_a_newer_database(tmp_path: Path) -> None:
    path = tmp_path / "paddock.db"
    await (await Database.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO schema_version VALUES (999, 'later', '')")
    connection.close()
    check = check_database(path, 5).check
    assert (status(check), check.remedy) == ("failure", "run the version that wrote it")


def test_policy_files(settings: Settings, tmp_path: Path) -> None:
    assert status(check_policy(settings)) == "ok"
    settings.state_dir.mkdir()
    settings.keys_path.write_text("[[keys]]\nname = 1\n")
    assert "keys entry 1" in check_policy(settings).detail
    settings.keys_path.write_text("")
    settings.keys_path.chmod(0o666)
    check = check_policy(settings)
    assert (status(check), check.remedy) == ("failure", f"chmod go-w {settings.keys_path}")
    settings.keys_path.chmod(0o600)
    secret = "a-key-of-ci-0123456789"
    settings.keys_path.write_text(entry("ci", secret, more='max_level = "lowest"'))
    check = check_policy(settings)
    assert (status(check), "max_level of ci" in check.detail) == ("failure", True)
    settings.keys_path.write_text(entry("ci", secret, more='max_level = "low"'))
    assert status(check_policy(settings)) == "ok"
    directory = tmp_path / "levels"
    directory.mkdir()
    ours = settings.model_copy(update={"levels_dir": directory})
    assert status(check_policy(ours)) == "ok"
    (directory / "low.toml").write_text("commands = 1")
    assert "low.toml" in check_policy(ours).detail


def test_sandboxes_that_cannot_wait_for_templates(settings: Settings, tmp_path: Path) -> None:
    def found(**members: object) -> str:
        changed = {"templates_dir": tmp_path, "warm_sandboxes": 3, **members}
        check = check_policy(settings.model_copy(update=changed))
        return "" if status(check) == "ok" else f"{status(check)}: {check.detail}"

    (tmp_path / "site.toml").write_text('warm = 2\npermission_level = "low"')
    (tmp_path / "other.toml").write_text("")
    assert found() == ""
    assert "have 2 sandboxes wait, and PADDOCK_WARM_SANDBOXES has room for 1" in found(
        warm_least={"low": 2}
    )
    assert found(warm_sandboxes=0).startswith("warning: templates have 2 sandboxes wait")
    assert "with PADDOCK_RUNTIME" in found(runtime="runsc")
    levels = tmp_path / "levels"
    levels.mkdir()
    own = _PACKAGED.joinpath("low.toml").read_text()
    (levels / "low.toml").write_text(f'runtime = "crun"\n{own}')
    assert "template site: sandboxes of level low can't be started ahead" in found(
        levels_dir=levels
    )


@pytest.mark.parametrize(
    ("free", "expected"), [(0, "failure"), (1, "warning"), (2, "ok"), (100, "ok")]
)
def test_room(settings: Settings, free: int, expected: str) -> None:
    least = {"min_free_memory_bytes": GIB, "min_free_disk_bytes": GIB}
    ours = settings.model_copy(update=least)
    found = Resources(free * GIB, free * GIB)
    assert status(memory_check(ours, found)) == status(disk_check(ours, found)) == expected


def test_clock() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    before = now - timedelta(days=3)
    assert status(clock_check(now, before, None)) == "ok"
    assert status(clock_check(now, before, "2026-04-30T23:59:59.999999Z")) == "ok"
    assert status(clock_check(now, before, "2026-05-01T00:00:00.000001Z")) == "failure"
    assert status(clock_check(now, now + timedelta(days=3), None)) == "failure"


@pytest.fixture
def taken(settings: Settings) -> Iterator[tuple[Settings, socket.socket]]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(4)
        yield settings.model_copy(update={"listen": f"127.0.0.1:{held.getsockname()[1]}"}), held


def test_port(settings: Settings, taken: tuple[Settings, socket.socket]) -> None:
    assert status(check_port(settings)) == "ok"
    assert status(check_port(settings.model_copy(update={"listen": "192.0.2.1:80"}))) == "failure"
    ours, held = taken

    def answer() -> None:
        held.accept()[0].close()

    thread = threading.Thread(target=answer)
    thread.start()
    check = check_port(ours)
    thread.join()
    assert status(check) == "failure"
    assert "something else" in check.detail


def test_our_own_port(settings: Settings) -> None:
    class Ours(http.server.BaseHTTPRequestHandler):
        def version_string(self) -> str:
            return "paddock"

        def log_message(self, format: str, *args: object) -> None:
            return

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ours) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            listen = f"127.0.0.1:{server.server_port}"
            check = check_port(settings.model_copy(update={"listen": listen}))
        finally:
            server.shutdown()
    assert (status(check), check.detail) == ("ok", f"Paddock listens on {listen}")


def test_levels() -> None:
    levels = load_levels()
    assert [c.status for c in level_checks(levels, [], FACTS, None, 64)] == ["ok"] * 3
    unkept = warning("open network", "no iptables", "install it")
    *others, high = level_checks(levels, [], FACTS, unkept, 64)
    assert [each.status for each in others] == ["ok", "ok"]
    assert (high.status, high.remedy) == ("failure", "install it")
    assert high.detail.endswith("can't be kept from the host: no iptables")
    failed = [failure("mounts", "x", "y"), failure("port", "x", "y"), warning("image", "x", "y")]
    checks = level_checks(levels, failed, FACTS, None, 64)
    assert [status(check) for check in checks] == ["failure"] * 3
    assert checks[0].detail == "can't be enforced: mounts"
    assert [status(check) for check in level_checks(levels, [], FACTS, None, 1)] == [
        "ok",
        "ok",
        "warning",
    ]


def test_levels_that_the_host_can_not_enforce() -> None:
    levels = load_levels()
    newest = replace(levels["high"].requires, landlock=6)
    levels["high"] = replace(levels["high"], requires=newest)
    facts = replace(FACTS, kernel=FULL_KERNEL._replace(landlock=5))
    low, _, high = level_checks(levels, [], facts, None, 64)
    assert (status(low), status(high)) == ("ok", "failure")
    assert high.detail == ("can't be enforced: needs Landlock version 6, but found version 5")
    # For the check whether sessions can be created, this level is only a warning.
    checks = enforceable(levels, facts)
    assert [check.name for check in checks] == ["level low", "level medium", "level high"]
    assert [status(check) for check in checks] == ["ok", "ok", "warning"]
    nothing = replace(facts, kernel=UNKNOWN_KERNEL)
    assert [status(check) for check in enforceable(levels, nothing)] == ["failure"] * 3


def test_healthy() -> None:
    assert healthy([ok("a", "b"), warning("c", "d", "e")])
    assert not healthy([ok("a", "b"), failure("c", "d", "e")])
    assert warning("c", "d", "e").public() == {
        "name": "c",
        "status": "warning",
        "detail": "d",
        "remedy": "e",
    }


async def test_all_together(settings: Settings) -> None:
    engine = FakeEngine(images={settings.image: IMAGE})
    checks = await run_checks(settings, engine=engine, image_inputs=lambda: "abc")
    by_name = {check.name: check for check in checks}
    assert len(by_name) == len(checks) == 25
    assert "prompts of tools" in by_name
    assert [status(check) for check in checks if check.name.startswith("level ")]
    assert by_name["engine"].ok
    assert "in Python" in by_name["guard of commands"].detail
    assert not settings.state_dir.exists()
    assert not engine.open_network


async def test_the_guard_of_commands() -> None:
    async def look(found: bool) -> bool:
        return found

    async def fails() -> bool:
        raise EngineUnavailableError("no engine")

    async def hangs() -> bool:
        await asyncio.Event().wait()
        return True

    assert status(await check_guard(partial(look, True), FULL_KERNEL, 1.0)) == "ok"
    slow = await check_guard(partial(look, False), FULL_KERNEL, 1.0)
    assert (status(slow), slow.remedy) == (
        "warning",
        "where Debian's mirrors can be reached: paddock images build --force",
    )
    for lacking in ("scopes", "notification"):
        older = await check_guard(partial(look, True), without(FULL_KERNEL, [lacking]), 1.0)
        assert (status(older), older.remedy) == (
            "warning",
            "use a kernel of 6.12 or later with both",
        )
    assert "no engine" in (await check_guard(fails, FULL_KERNEL, 1.0)).detail
    assert "no answer" in (await check_guard(hangs, FULL_KERNEL, 0.01)).detail


async def test_a_runtime_that_offers_less_is_found(settings: Settings) -> None:
    engine = FakeEngine(images={settings.image: IMAGE})
    engine.sandbox_kernel = FULL_KERNEL._replace(landlock=0)
    with tempfile.TemporaryDirectory(prefix="pdk-") as short:
        ours = settings.model_copy(update={"state_dir": Path(short, "state")})
        checks = {check.name: check for check in await run_checks(ours, engine=engine)}
        low = checks["level low"]
        assert (status(low), low.detail) == (
            "failure",
            "can't be enforced: needs Landlock version 1, but found none",
        )
        engine.fail_next("kernel")
        checks = {check.name: check for check in await run_checks(ours, engine=engine)}
        assert checks["level low"].ok


async def test_without_an_engine_no_level_can_be_enforced(settings: Settings) -> None:
    dead = settings.model_copy(update={"docker_host": "tcp://127.0.0.1:9"})
    checks = {check.name: check for check in await run_checks(dead)}
    assert not checks["engine"].ok
    assert not checks["image"].ok
    assert "engine" in checks["level low"].detail


async def test_an_engine_that_hangs_is_given_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.operate.checks.doctor._SECONDS", 0.2)
    engine, before = FakeEngine(images={settings.image: IMAGE}), set(threading.enumerate())
    engine.hang_next("info")
    async with asyncio.timeout(WAIT_SECONDS):
        checks = {check.name: check for check in await run_checks(settings, engine=engine)}
    assert "no answer" in checks["engine"].detail
    assert checks["image"].ok
    # Checks that were given up, too, still unmount what they have mounted.
    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join, WAIT_SECONDS)


@pytest.mark.parametrize(
    ("taken", "lost", "took", "wanted", "said"),
    [
        (3, 0, 812, "ok", "took over 3 sessions in 0.8 s"),
        (3, 1, 812, "warning", "ended 1 whose sandboxes were gone"),
        (100, 0, 6000, "warning", "took over 100 sessions in 6.0 s"),
    ],
)
def test_the_last_start(taken: int, lost: int, took: int, wanted: str, said: str) -> None:
    found = {"sessions_recovered": taken, "sessions_lost": lost, "recovery_time_ms": took}
    check = recovery_check("2026-01-02T03:04:05Z", found)
    assert (str(check.status), said in check.detail) == (wanted, True)
