"""Levels and keys follow their files; an invalid edit changes nothing."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import watchfiles
from pydantic import SecretStr

from orchestrator.cluster import alone
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import TaskName, Tasks
from orchestrator.operate.checks.readiness import policy_check
from orchestrator.operate.checks.state import check_policy
from orchestrator.operate.operator import reload
from orchestrator.operate.operator.reload import Reload
from orchestrator.record.audit import query
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.admin_key import rotate_admin_key
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.access.keys_file import add_key, remove_key
from orchestrator.rules.policy import levels
from orchestrator.rules.tools.catalog import read_catalog
from orchestrator.rules.tools.cedar import CedarFacts
from orchestrator.rules.tools.manifest import CedarNames
from orchestrator.settings.settings import Settings
from tests.support.limits import WAIT_SECONDS
from tests.support.manifests import MINIMAL, PSQL
from tests.support.until import until

# The real value, which the tests' own value replaces.
STEP_MS = reload.STEP_MS
NAMES = CedarNames("Data::Database", "query", None)
FACTS = CedarFacts("psql.add", "ready", 0, "low", "low", "agent")
PACKAGED = Path(levels.__file__).with_name("levels")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "levels").mkdir()
    (tmp_path / "state").mkdir()
    return Settings(
        state_dir=tmp_path / "state",
        levels_dir=tmp_path / "levels",
        admin_key=SecretStr("the-admin-key-of-tests"),
    )


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    database = await Database.open(settings.state_dir / "paddock.db")
    yield database
    await database.close()


@pytest.fixture
async def policy(settings: Settings, ledger: Ledger) -> AsyncIterator[Reload]:
    policy = Reload(settings)
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    yield policy
    await policy.close()
    assert not [t for t in threading.enumerate() if t.name == "policy-watch"]


async def event(ledger: Ledger, database: Database, seq: int) -> dict[str, Any]:
    """The event with this `seq` in the system's chain, once it exists."""
    async with asyncio.timeout(WAIT_SECONDS):
        await ledger.wait(SYSTEM_KEY, seq - 1)
    (found,) = await query.events(database, SYSTEM_KEY, after_seq=seq - 1, limit=1)
    assert found["operation"] == "policy.reloaded"
    return found


def edit(settings: Settings, name: str, old: str, new: str) -> bytes:
    """Replaces the packaged level with an edited copy, in the way of an editor."""
    assert settings.levels_dir is not None
    text = (PACKAGED / f"{name}.toml").read_text()
    assert old in text
    draft = settings.levels_dir / f".{name}.swp"
    draft.write_text(text.replace(old, new))
    draft.rename(settings.levels_dir / f"{name}.toml")
    return text.replace(old, new).encode()


async def test_a_level_is_replaced_and_recorded(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    held = policy.levels["low"]
    data = edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    found = await event(ledger, database, 1)
    await policy.look()
    assert policy.levels["low"].limits.cpus == 0.25
    assert held.limits.cpus == 0.5
    assert found["args"] == {
        "file": str(settings.levels_dir / "low.toml"),  # type: ignore[operator]
        "sha256": sha256(data).hexdigest(),
    }
    assert (found["result"], found["error"]) == ({"ok": True}, None)


async def test_a_broken_level_changes_nothing_until_mended(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    path = settings.levels_dir / "low.toml"  # type: ignore[operator]
    edit(settings, "low", "cpus = 0.5", "cpus = 'half'")
    found = await event(ledger, database, 1)
    await policy.look()
    assert policy.levels["low"].limits.cpus == 0.5
    assert "limits.cpus" in policy.problems[path]
    assert found["result"] == {"ok": False}
    assert found["error"] == policy.problems[path]
    edit(settings, "low", "cpus = 0.5", "cpus = 0.4")
    assert (await event(ledger, database, 2))["result"] == {"ok": True}
    await policy.look()
    assert policy.problems == {}
    assert policy.levels["low"].limits.cpus == 0.4
    path.unlink()
    assert (await event(ledger, database, 3))["args"]["sha256"] is None
    await policy.look()
    assert policy.levels["low"].limits.cpus == 0.5


async def test_a_level_of_the_operators_comes_and_goes(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    directory = settings.levels_dir
    assert directory is not None
    text = (PACKAGED / "low.toml").read_text()
    (directory / ".build.toml").write_text("a draft")
    (directory / "build.toml").write_text(text.replace("rank = 100", "rank = 150"))
    found = await event(ledger, database, 1)
    await policy.look()
    assert found["args"]["file"] == str(directory / "build.toml")
    assert list(policy.levels) == ["low", "build", "medium", "high"]
    (directory / "Wrong.toml").write_text(text)
    found = await event(ledger, database, 2)
    assert "Wrong.toml: a level's name begins with" in found["error"]
    (directory / "Wrong.toml").unlink()
    assert (await event(ledger, database, 3))["result"] == {"ok": True}
    (directory / "build.toml").unlink()
    assert (await event(ledger, database, 4))["args"]["sha256"] is None
    await policy.look()
    assert list(policy.levels) == ["low", "medium", "high"]
    assert policy.problems == {}


async def test_keys_come_and_go(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    changes: list[str] = []
    policy.keys.on_change(lambda: changes.append("changed"))
    secret = add_key(settings.keys_path, Principal("ci", Role.OPERATOR))
    await event(ledger, database, 1)
    principal = policy.keys.authenticate(secret)
    assert principal is not None
    assert principal.name == "ci"
    remove_key(settings.keys_path, "ci")
    await event(ledger, database, 2)
    assert policy.keys.authenticate(secret) is None
    assert policy.keys.authenticate("the-admin-key-of-tests") is not None
    assert changes == ["changed", "changed"]


@pytest.fixture
def file_settings(settings: Settings) -> Settings:
    """The settings with the admin key in its file."""
    return settings.model_copy(update={"admin_key": None})


def _put(path: Path, text: str) -> None:
    """Atomically: otherwise the file is empty for a moment, which would be a change, too."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)


async def test_the_admin_key_is_replaced_in_its_file(
    file_settings: Settings, ledger: Ledger, database: Database
) -> None:
    path = file_settings.state_dir / "admin.key"
    policy = Reload(file_settings)
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    try:
        first = path.read_text().strip()
        second = rotate_admin_key(path)
        found = await event(ledger, database, 1)
        assert (found["args"], found["result"]) == (
            {"file": str(path), "sha256": None},
            {"ok": True},
        )
        assert policy.keys.authenticate(first) is None
        assert policy.keys.authenticate(second) == Principal("admin", Role.ADMIN)
        assert path.stat().st_mode & 0o777 == 0o600
        # An edit by hand works, too; an invalid key changes nothing.
        _put(path, "short\n")
        await event(ledger, database, 2)
        await policy.look()
        assert policy.keys.authenticate(second) is not None
        assert "at least 16" in policy.problems[path]
        _put(path, "the-third-admin-key\n")
        await event(ledger, database, 3)
        assert policy.keys.authenticate(second) is None
        assert policy.keys.authenticate("the-third-admin-key") is not None
        # If the file is removed, a new key is written to a new file.
        path.unlink()
        await event(ledger, database, 4)
        await policy.look()
        assert policy.keys.authenticate("the-third-admin-key") is None
        assert policy.keys.authenticate(path.read_text().strip()) is not None
        events = await query.events(database, SYSTEM_KEY)
        assert "admin-key" not in str(events)
    finally:
        await policy.close()


async def test_the_first_start_is_no_change(file_settings: Settings, database: Database) -> None:
    policy = Reload(file_settings)
    await policy.look()
    assert await query.events(database, SYSTEM_KEY) == []


async def test_broken_keys_change_nothing(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    secret = add_key(settings.keys_path, Principal("ci", Role.OPERATOR))
    await event(ledger, database, 1)
    with settings.keys_path.open("a") as file:
        file.write("[[keys]]\nname = 1\n")
    found = await event(ledger, database, 2)
    await policy.look()
    assert "keys entry 2" in found["error"]
    assert policy.keys.authenticate(secret) is not None
    assert settings.keys_path in policy.problems


async def test_manifests_of_tools_follow_their_files(
    settings: Settings, tmp_path: Path, ledger: Ledger, database: Database
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(PSQL, tools)
    policy = Reload(settings.model_copy(update={"tools_dir": tools}))
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    try:
        held = policy.tools.catalog["psql_session"]
        broken = tools / PSQL.name
        broken.write_text("= 1")
        found = await event(ledger, database, 1)
        assert (found["args"]["file"], found["result"]) == (str(broken), {"ok": False})
        assert "is not TOML" in found["error"]
        (tools / "calc.clad.toml").write_text(MINIMAL)
        found = await event(ledger, database, 2)
        assert (found["args"]["file"], found["result"]) == (
            str(tools / "calc.clad.toml"),
            {"ok": True},
        )
        await policy.look()
        assert policy.tools.catalog["psql_session"] is held
        assert "calc" in policy.tools.catalog
        assert list(policy.problems) == [broken]
        broken.unlink()
        await event(ledger, database, 3)
        await policy.look()
        assert "psql_session" not in policy.tools.catalog
        assert policy.problems == {}
    finally:
        await policy.close()


async def test_a_broken_scope_file_denies_all_at_once(
    settings: Settings, tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "scope.toml"
    path.write_text("[scope]\ntargets = ['10.0.0.0/8']")
    policy = Reload(settings.model_copy(update={"scope_file": path}))
    policy._recorder = Recorder(ledger, Metrics())  # it looks only when the test tells it to
    assert policy.tools.scope.refusal("10.0.0.1") is None
    path.write_text("[scope")
    await policy.look()
    assert policy.tools.scope.refusal("10.0.0.1") is not None
    assert list(policy.problems) == [path]


async def test_readiness_says_where_a_level_is_broken(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    """It is open to everybody: of other files it tells the name only."""
    edit(settings, "low", "cpus = 0.5", "cpus = -1")
    await event(ledger, database, 1)
    detail = policy_check(policy.problems, settings.levels_dir).detail
    line = 1 + (PACKAGED / "low.toml").read_text().splitlines().index("cpus = 0.5")
    assert f"low.toml:{line}: limits.cpus: must be greater than or equal to 0.05" in detail
    assert str(settings.levels_dir) not in detail
    secret = {settings.keys_path: f"{settings.keys_path}:3: keys.0.name: of somebody"}
    detail = policy_check(secret, settings.levels_dir).detail
    assert detail.endswith(": keys.toml")


@pytest.mark.parametrize(
    ("setting", "name", "text"),
    [
        ("tools_dir", "x.clad.toml", "= 1"),
        ("cedar_dir", "x.cedar", "permit ("),
        ("scope_file", "scope.toml", "= 1"),
        ("scope_file", "scope.toml", "a = " + "[" * 20_000),
        ("tools_dir", "x.clad.toml", f"{MINIMAL}schema{'.a' * 2_000} = 1"),
    ],
    ids=["manifest", "policies", "scope", "deep scope", "deep manifest"],
)
async def test_a_start_with_broken_rules_of_tools_says_so(
    settings: Settings,
    tmp_path: Path,
    ledger: Ledger,
    database: Database,
    setting: str,
    name: str,
    text: str,
) -> None:
    path = tmp_path / "rules" / name
    path.parent.mkdir()
    path.write_text(text)
    given = path if setting == "scope_file" else path.parent
    settings = settings.model_copy(update={setting: given})
    policy = Reload(settings)
    assert name in policy.problems[path]
    check = policy_check(policy.problems)
    assert (str(check.status), name in check.detail) == ("warning", True)
    check = check_policy(settings)
    assert (str(check.status), name in check.detail) == ("warning", True)
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    try:
        found = await event(ledger, database, 1)
        assert (found["args"]["file"], found["result"]) == (str(path), {"ok": False})
        assert name in found["error"]
    finally:
        await policy.close()


def test_a_start_with_broken_rules_allows_nothing_by_them(
    settings: Settings, tmp_path: Path
) -> None:
    rules = write_rules(tmp_path, manifest="= 1", scope="= 1", policies="permit (")
    tools = Reload(settings.model_copy(update=rules)).tools
    assert list(tools.catalog) == []  # which tool the file defines is unknown
    assert "can't be used" in (tools.scope.refusal("10.0.0.1") or "")
    assert tools.policies is not None
    assert "can't be read" in (tools.policies.refusal("psql", NAMES, FACTS) or "")


def test_a_broken_manifest_does_not_bring_back_the_shipped_tool(
    settings: Settings, tmp_path: Path
) -> None:
    broken = MINIMAL.replace('"calc"', '"psql"').replace('"^> $"', '".*"')
    rules = write_rules(tmp_path, manifest=broken)
    tools = Reload(settings.model_copy(update=rules)).tools
    assert "psql" not in tools.catalog
    assert "redis-cli" in tools.catalog


def test_a_start_with_broken_rules_uses_what_was_read_last(
    settings: Settings, tmp_path: Path
) -> None:
    ours = settings.model_copy(
        update=write_rules(
            tmp_path,
            manifest=MINIMAL.replace('"calc"', '"psql"'),
            scope="[scope]\ntargets = ['10.0.0.0/8']",
            policies="permit (principal, action, resource);",
        )
    )
    assert Reload(ours).problems == {}
    write_rules(tmp_path, manifest="= 1", scope="= 1", policies="permit (")
    policy = Reload(ours)
    assert len(policy.problems) == 3
    assert list(policy.tools.catalog["psql"].commands) == ["add"]
    assert "redis-cli" in policy.tools.catalog
    assert policy.tools.policies is not None
    assert policy.tools.policies.refusal("psql", NAMES, FACTS) is None
    # The scope is never kept after its file has become invalid.
    assert policy.tools.scope.refusal("10.0.0.1") is not None


async def test_folders_that_are_missing_at_the_start(
    settings: Settings, tmp_path: Path, ledger: Ledger
) -> None:
    missing = {"tools_dir": tmp_path / "tools", "cedar_dir": tmp_path / "cedar"}
    policy = Reload(settings.model_copy(update=missing))
    assert sorted(policy.problems) == sorted(missing.values())
    assert list(policy.tools.catalog) == []
    assert policy.tools.policies is not None
    assert policy.tools.policies.refusal("psql", NAMES, FACTS) is not None
    for directory in missing.values():
        directory.mkdir()
    policy._recorder = Recorder(ledger, Metrics())
    await policy.look()
    assert policy.problems == {}
    assert "psql" in policy.tools.catalog


def write_rules(directory: Path, **texts: str) -> dict[str, Path]:
    """Writes files of tool rules, and returns the settings that name them."""
    files = {
        "manifest": ("tools_dir", "tools/mine.clad.toml"),
        "scope": ("scope_file", "scope/scope.toml"),
        "policies": ("cedar_dir", "cedar/mine.cedar"),
    }
    settings = {}
    for kind, text in texts.items():
        setting, name = files[kind]
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        settings[setting] = path if setting == "scope_file" else path.parent
    return settings


async def test_nothing_that_changes_all_the_time_is_watched(
    file_settings: Settings, tmp_path: Path
) -> None:
    scope = file_settings.state_dir / "scope.toml"
    scope.write_text("[scope]\ntargets = []\n")
    policy = Reload(file_settings.model_copy(update={"scope_file": scope}))
    state = file_settings.state_dir
    watched = {path for source in policy._sources for path in source.watched()}
    assert watched == {
        state / "admin.key",
        state / "keys.toml",
        state / "images.toml",
        scope,
        tmp_path / "levels",
    }
    # The first start creates the keys file, so that it can be watched.
    assert (state / "keys.toml").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_is_replaced_again_and_again(
    policy: Reload, settings: Settings, ledger: Ledger, database: Database
) -> None:
    for number in range(3):
        secret = add_key(settings.keys_path, Principal(f"ci-{number}", Role.OPERATOR))
        await event(ledger, database, number + 1)
        assert policy.keys.authenticate(secret) is not None


async def test_the_same_content_is_no_change(
    policy: Reload, settings: Settings, database: Database
) -> None:
    os.utime(settings.levels_dir)  # type: ignore[arg-type]
    settings.keys_path.with_name("other.toml").write_text("x")
    await policy.look()
    assert await query.events(database, SYSTEM_KEY) == []


async def test_without_a_ledger_keys_go_and_levels_stay(
    settings: Settings, ledger: Ledger, database: Database
) -> None:
    secret = add_key(settings.keys_path, Principal("ci", Role.OPERATOR))
    policy = Reload(settings)
    policy._recorder = Recorder(ledger, Metrics())  # it looks only when the test tells it to
    await ledger.close()
    edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    remove_key(settings.keys_path, "ci")
    await policy.look()
    assert policy.keys.authenticate(secret) is None
    assert policy.levels["low"].limits.cpus == 0.5
    assert len(policy.problems) == 2
    again = Ledger(database)
    policy._recorder = Recorder(again, Metrics())
    await policy.look()
    await again.close()
    assert policy.levels["low"].limits.cpus == 0.25
    assert policy.problems == {}
    assert len(await query.events(database, SYSTEM_KEY)) == 2


async def test_a_levels_directory_that_goes_away(policy: Reload, settings: Settings) -> None:
    edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    await policy.look()
    shutil.rmtree(settings.levels_dir)  # type: ignore[arg-type]
    await policy.look()
    assert policy.levels["low"].limits.cpus == 0.25
    assert "is not a directory" in str(policy.problems)


async def test_an_edit_before_the_watch_is_seen(
    settings: Settings, ledger: Ledger, database: Database
) -> None:
    policy = Reload(settings)
    edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    try:
        assert (await event(ledger, database, 1))["result"] == {"ok": True}
    finally:
        await policy.close()


def test_a_named_keys_file_must_exist(settings: Settings, tmp_path: Path) -> None:
    Reload(settings)
    with pytest.raises(ConfigError, match=r"named\.toml: No such file"):
        Reload(settings.model_copy(update={"keys_file": tmp_path / "named.toml"}))


async def test_a_failure_of_the_follower_loses_no_edit(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower is restarted, and finds what has changed meanwhile."""
    policy, counted = Reload(settings), list[TaskName]()
    look, failures = policy.look, iter(range(2))

    async def failing() -> None:
        if next(failures, None) is not None:
            raise ZeroDivisionError("nobody thought of it")
        await look()

    monkeypatch.setattr(policy, "look", failing)
    policy.watch(Recorder(ledger, Metrics()), Tasks(counted.append))
    try:
        add_key(settings.keys_path, Principal("new", Role.OPERATOR))
        await until(lambda: policy.keys.named("new") is not None)
    finally:
        await policy.close()
    assert counted == [TaskName.POLICY] * 2


async def test_a_failure_of_the_watching_thread_loses_no_edit(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, counted = Reload(settings), list[TaskName]()
    failures = iter(range(2))

    def failing(*paths: Any, **options: Any) -> Any:
        if next(failures, None) is not None:
            raise ZeroDivisionError("nobody thought of it")
        return watchfiles.watch(*paths, **options)

    monkeypatch.setattr(reload, "watch", failing)
    policy.watch(Recorder(ledger, Metrics()), Tasks(counted.append))
    try:
        await until(lambda: len(counted) == 2)
        add_key(settings.keys_path, Principal("new", Role.OPERATOR))
        await until(lambda: policy.keys.named("new") is not None)
    finally:
        await policy.close()
    assert counted == [TaskName.POLICY_WATCH] * 2


async def test_the_watch_wakes_rarely_and_takes_a_change_in_soon(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real intervals: a look per second, and changes apply within three seconds."""
    seen: list[dict[str, Any]] = []

    def watched(*paths: Any, **options: Any) -> Any:
        seen.append(options)
        return watchfiles.watch(*paths, **{**options, "step": 20})

    monkeypatch.setattr(reload, "watch", watched)
    monkeypatch.setattr(reload, "STEP_MS", STEP_MS)
    policy = Reload(settings)
    policy.watch(Recorder(ledger, Metrics()), Tasks())
    try:
        await until(lambda: bool(seen))
    finally:
        await policy.close()
    (options, *_) = seen
    assert options["step"] >= 1000
    # The first look sees the change, and the second one reports it.
    assert 2 * options["step"] < 3000
    # A file that changes all the time is reported just as soon.
    assert options["debounce"] <= options["step"]
    assert options["rust_timeout"] > options["step"]
    assert not options.get("force_polling")


async def test_a_file_that_breaks_its_reader_is_a_broken_file(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Reload(settings)

    def broken(_settings: Settings) -> Any:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(alone, "load_keys", broken)
    add_key(settings.keys_path, Principal("new", Role.OPERATOR))
    await policy.look()
    assert policy.keys.named("new") is None
    assert "reading it failed" in policy.problems[settings.keys_path]
    monkeypatch.undo()
    add_key(settings.keys_path, Principal("another", Role.OPERATOR))
    await policy.look()
    assert policy.problems == {}


async def test_files_that_hang_are_no_silence(
    policy: Reload, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look fails, which its task reports; once the disk answers, the change is applied."""
    answers, readers = threading.Event(), set[str]()
    (source,) = [found for found in policy._sources if found.directory == settings.levels_dir]
    read = source.read

    def hang() -> Any:
        readers.add(threading.current_thread().name)
        assert answers.wait(WAIT_SECONDS)
        return read()

    source.read = hang
    for task in policy._tasks:
        await task.close()  # no other look interferes
    monkeypatch.setattr(reload, "_READ_SECONDS", 0.01)
    edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await policy.look()
    assert policy.levels["low"].limits.cpus == 0.5
    answers.set()
    monkeypatch.setattr(reload, "_READ_SECONDS", 30.0)
    await policy.look()
    assert policy.levels["low"].limits.cpus == 0.25
    # No thread of the shared executor was used.
    assert not [name for name in readers if name.startswith("asyncio")]


STRICT = MINIMAL.replace('"calc"', '"psql"')


def unlistable(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """The folder can't be listed, although its files can be opened by name."""
    listdir = os.listdir

    def refusing(path: Any = ".") -> Any:
        if Path(path) == directory:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)


def told(policy: Reload, settings: Settings, name: str) -> None:
    """Asserts that `/readyz` and the doctor name the file."""
    for check in (policy_check(policy.problems), check_policy(settings)):
        assert (str(check.status), name in check.detail) == ("warning", True)


@pytest.mark.parametrize("known", [True, False])
async def test_a_folder_of_manifests_that_can_not_be_listed(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ledger: Ledger,
    known: bool,
) -> None:
    """The packaged tools do not replace the operator's tools."""
    ours = settings.model_copy(update=write_rules(tmp_path, manifest=STRICT))
    directory = tmp_path / "tools"
    if known:
        assert Reload(ours).problems == {}
    with monkeypatch.context() as patch:
        unlistable(patch, directory)
        policy = Reload(ours)
        assert list(policy.problems) == [directory]
        told(policy, ours, "tools")
        assert {name: list(tool.commands) for name, tool in policy.tools.catalog.items()} == (
            {"psql": ["add"]} if known else {}
        )
    policy._recorder = Recorder(ledger, Metrics())
    await policy.look()
    assert policy.problems == {}
    assert list(policy.tools.catalog["psql"].commands) == ["add"]
    with monkeypatch.context() as patch:
        unlistable(patch, directory)
        await policy.look()
        assert list(policy.problems) == [directory]
        assert list(policy.tools.catalog["psql"].commands) == ["add"]


async def test_a_folder_of_policies_that_can_not_be_listed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = "permit (principal, action, resource);"
    ours = settings.model_copy(update=write_rules(tmp_path, policies=policies))
    unlistable(monkeypatch, tmp_path / "cedar")
    policy = Reload(ours)
    told(policy, ours, "cedar")
    assert policy.tools.policies is not None
    assert policy.tools.policies.refusal("psql", NAMES, FACTS) is not None


def test_a_folder_of_levels_that_can_not_be_listed_hides_no_level(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(settings, "low", "cpus = 0.5", "cpus = 0.25")
    assert settings.levels_dir is not None
    unlistable(monkeypatch, settings.levels_dir)
    with pytest.raises(ConfigError, match="levels: Input/output error"):
        Reload(settings)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, make_folder, make_endless])
def test_what_is_no_file_is_not_waited_for(
    settings: Settings, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """Such a path is not treated as a missing file either."""
    rules = write_rules(tmp_path, manifest="", scope="", policies="")
    for folder in ("tools", "scope", "cedar"):
        (path,) = (tmp_path / folder).iterdir()
        path.unlink()
        make(path)
    ours = settings.model_copy(update=rules)
    policy = Reload(ours)
    assert {path.name for path in policy.problems} == {
        "mine.clad.toml",
        "scope.toml",
        "mine.cedar",
    }
    if make is not make_endless:  # the doctor reports only that others can write it
        told(policy, ours, "mine.clad.toml")
    # The reader can't tell which tool it defines.
    assert list(policy.tools.catalog) == []
    assert policy.tools.scope.refusal("10.0.0.1") is not None
    assert policy.tools.policies is not None
    assert policy.tools.policies.refusal("psql", NAMES, FACTS) is not None


@pytest.mark.parametrize("make", [make_pipe, make_endless])
def test_keys_and_levels_that_are_no_files_are_refused_at_once(
    settings: Settings, make: Callable[[Path], None]
) -> None:
    assert settings.levels_dir is not None
    make(settings.levels_dir / "low.toml")
    with pytest.raises(ConfigError, match=r"low\.toml: is not a regular file"):
        Reload(settings)
    (settings.levels_dir / "low.toml").unlink()
    settings.keys_path.unlink()
    make(settings.keys_path)
    with pytest.raises(ConfigError, match=r"keys\.toml: is not a regular file"):
        Reload(settings)


@pytest.mark.parametrize("reader", ["read_catalog", "load_scope", "load_policies"])
def test_a_reader_that_breaks_keeps_nobody_from_starting(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    rules = write_rules(tmp_path, manifest=STRICT, scope="[scope]", policies="")
    ours = settings.model_copy(update=rules)

    def broken(*given: Any) -> Any:
        if given == (None,):  # without the operator's files
            return read_catalog(None)
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(f"orchestrator.rules.tools.tool_rules.{reader}", broken)
    policy = Reload(ours)
    (problem,) = policy.problems.values()
    assert "reading it failed" in problem
    for check in (policy_check(policy.problems), check_policy(ours)):
        assert str(check.status) == "warning"
    if reader == "read_catalog":
        assert list(policy.tools.catalog) == []
    elif reader == "load_scope":
        assert policy.tools.scope.refusal("10.0.0.1") is not None
    else:
        assert policy.tools.policies is not None
        assert policy.tools.policies.refusal("psql", NAMES, FACTS) is not None
