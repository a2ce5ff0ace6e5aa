"""Checks of the state directory, its database, and the operator's files."""

import os
import sqlite3
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.store.database_file import newest_schema
from orchestrator.operate.checks.recovery import check_recovery
from orchestrator.operate.checks.templates import warm_problems
from orchestrator.rules.access.key_entries import add_entries
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.rules.tools.tool_rules import ToolRules
from orchestrator.settings import image_list
from orchestrator.settings.operator_files import files_in, read_toml
from orchestrator.settings.operator_models import load_key
from orchestrator.settings.operator_secrets import check_levels
from orchestrator.settings.settings import Settings

STATE = "state directory"
DATABASE = "database"
POLICY = "policy files"
# The kernel's size limit of a UNIX socket's path, including its final NUL.
_MOST_SOCKET_PATH = 108
_LONGEST_SOCKET = "/sandboxes/0123456789abcdef/run/control.sock"


def check_state_dir(path: Path) -> Check:
    """Whether only this user can read it, and its sandboxes' socket paths fit."""
    longest = len(os.fsencode(path)) + len(_LONGEST_SOCKET) + 1
    if longest > _MOST_SOCKET_PATH:
        return failure(
            STATE,
            f"{path} is {longest - _MOST_SOCKET_PATH} bytes too long for sockets below it",
            "set PADDOCK_STATE_DIR to a shorter path",
        )
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return ok(STATE, f"{path} will be created at the first start")
    except OSError as error:
        return failure(STATE, f"{path}: {error.strerror}", "set PADDOCK_STATE_DIR to another")
    return _permissions(path, facts)


def _permissions(path: Path, facts: os.stat_result) -> Check:
    if not stat.S_ISDIR(facts.st_mode) and not path.is_dir():
        return failure(STATE, f"{path} is not a directory", "set PADDOCK_STATE_DIR to another")
    facts = path.stat()
    if facts.st_uid != os.geteuid():
        owner = f"{path} belongs to uid {facts.st_uid}, this is uid {os.geteuid()}"
        return failure(STATE, owner, f"run as its owner, or `chown {os.geteuid()} {path}`")
    if facts.st_mode & 0o077:
        mode = stat.S_IMODE(facts.st_mode)
        return failure(STATE, f"{path} is open to others ({mode:04o})", f"chmod 700 {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return failure(STATE, f"{path} can't be written", "mount it writable")
    return ok(STATE, f"{path} belongs to this user alone")


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """The check of the database, the time of its last event, and the check of the last start."""

    check: Check
    last_event: str | None = None
    recovery: Check | None = None


def check_database(path: Path, seconds: float) -> DatabaseCheck:
    """Reads the whole database for at most `seconds`; the control plane may be using it."""
    remedy = "stop the control plane, keep a copy, and restore the state directory from a backup"
    if not path.exists():
        return DatabaseCheck(ok(DATABASE, "will be created at the first start"))
    try:
        # Without a write-ahead log there is nothing to share, and no file is created next to it.
        alone = not path.with_name(path.name + "-wal").exists()
        mode = "mode=ro&immutable=1" if alone else "mode=ro"
        connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=2)
        try:
            return _read_through(connection, seconds)
        finally:
            connection.close()
    except sqlite3.Error as error:
        return DatabaseCheck(failure(DATABASE, f"{path.name}: {error}", remedy))


def _read_through(connection: sqlite3.Connection, seconds: float) -> DatabaseCheck:
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    row = connection.execute("SELECT time FROM events ORDER BY id DESC LIMIT 1").fetchone()
    last_event = None if row is None else str(row[0])
    known = newest_schema()
    if (version or 0) > known:
        detail = f"has schema {version}, but this Paddock knows schemas up to {known}"
        return DatabaseCheck(failure(DATABASE, detail, "run the version that wrote it"), last_event)
    recovery = check_recovery(connection)
    late = threading.Timer(seconds, connection.interrupt)
    late.start()
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        detail = f"schema {version}; reading all of it takes longer than {seconds:g} s"
        return DatabaseCheck(
            warning(DATABASE, detail, "check it with `sqlite3 … 'PRAGMA quick_check'`"),
            last_event,
            recovery,
        )
    finally:
        late.cancel()
        late.join()
    if found != ["ok"]:
        remedy = "stop the control plane, keep a copy, and restore from a backup"
        return DatabaseCheck(
            failure(DATABASE, f"is damaged: {'; '.join(found)}", remedy), last_event
        )
    return DatabaseCheck(ok(DATABASE, f"schema {version}, whole"), last_event, recovery)


def check_policy(settings: Settings) -> Check:
    """Whether files of policy are usable, and only their owner can edit them."""
    try:
        levels = load_levels(settings.levels_dir, cluster=settings.cluster is not None)
        check_levels(settings.secrets, levels)
        SessionPolicies(settings.session_policies_dir)
        templates = TemplateFiles(settings.templates_dir)
        keys: dict[str, Principal] = {}
        if settings.keys_file is not None or settings.keys_path.exists():
            add_entries(settings.keys_path, read_toml(settings.keys_path), keys)
        image_list.listed(settings)
    except ConfigError as error:
        return failure(
            POLICY, str(error), "fix the file; a running control plane keeps what it read before"
        )
    for key in keys.values():
        if key.bounds.max_level is not None and key.bounds.max_level not in levels:
            detail = f"{settings.keys_path}: max_level of {key.name}: there is no such level"
            return failure(POLICY, detail, f"name one of {', '.join(levels)}")
    loose = [path for path in _policy_files(settings) if _others_write(path)]
    if loose:
        listed = " ".join(str(path) for path in loose)
        return failure(POLICY, f"others can write {listed}", f"chmod go-w {listed}")
    if problems := _rule_problems(settings):
        # Sessions work without them: whatever a broken file would allow is denied.
        return warning(
            POLICY,
            "; ".join(problems),
            "fix the file; until then its last valid version applies, else nothing that it allows",
        )
    if problems := warm_problems(settings, templates, levels):
        return warning(
            POLICY,
            "; ".join(problems),
            "change PADDOCK_WARM_SANDBOXES, or `warm` in the template's file; sessions of the "
            "template begin without a waiting sandbox until then",
        )
    return ok(POLICY, "levels, session policies, keys, images and rules of tools can be read")


def _rule_problems(settings: Settings) -> list[str]:
    """Why rules of tools, or models, can't be used."""
    problems = []
    for name, model in settings.models.items():
        try:
            load_key(name, model)
        except ConfigError as error:
            problems.append(str(error))
    for rules in ToolRules(settings).files():
        try:
            rules.read()
        except ConfigError as error:
            problems.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the report
            named = rules.directory or rules.files()[0]
            problems.append(f"{named}: reading it failed: {error!r}")
    return problems


def _policy_files(settings: Settings) -> list[Path]:
    files: list[Path] = []
    for directory in (
        settings.levels_dir,
        settings.session_policies_dir,
        settings.templates_dir,
    ):
        if directory is not None:
            files += [directory, *files_in(directory, ".toml")]
    for rules in ToolRules(settings).files():
        found = rules.files()
        directories = {file.parent for file in found}
        named = [*(directories if rules.directory is None else [rules.directory]), *found]
        files += [path for path in named if path.exists()]
    single = (settings.keys_path, settings.images_path)
    return [*files, *(path for path in single if path.exists())]


def _others_write(path: Path) -> bool:
    facts = path.stat()
    return bool(facts.st_mode & 0o022) or facts.st_uid not in (0, os.geteuid())
