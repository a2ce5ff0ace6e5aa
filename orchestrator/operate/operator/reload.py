"""What the operator configures in files: read at the start, and again when a file changes.

A broken edit changes nothing: the last valid version stays in force until the file is fixed.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from watchfiles import watch

from orchestrator.ground.config_error import BrokenFilesError, ConfigError
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.operate.operator.followed_keys import FollowedKeys
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.configured_secrets import ConfiguredSecrets
from orchestrator.rules.oidc.issuers_file import IssuersFile
from orchestrator.rules.policy.levels import Levels, load_levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.rules.tools.tool_rules import LastGood, RuleFiles, ToolRules
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.settings.image_list import listed
from orchestrator.settings.operator_files import files_or_folder, table_files
from orchestrator.settings.settings import Settings
from orchestrator.settings.watched_files import Source, ensure_file, fingerprints

log = logging.getLogger(__name__)

# watchfiles has no wait that ends with an event. Its thread checks at this interval whether the
# kernel has reported changes, and then waits for one or two further intervals without news.
STEP_MS = 1000
_DEBOUNCE_MS = 400
# Some file systems report no changes, a directory may be replaced, and a file may not exist yet, so
# they are also checked at this interval.
_LOOK_SECONDS = 5.0
# A file system that hangs appears as a task that fails repeatedly.
_READ_SECONDS = 30.0
# For all files together, and between two reports of the thread that watches them.
_ROUND_SECONDS = 120.0
_UNRECORDED = "not on record"
_UNREADABLE = "reading it failed; the log says how"


class Reload:
    """The operator's present configuration.

    `levels`, `session_policies`, `templates`, `keys`, `issuers`, `images`, `secrets` and `tools`
    follow its files.

    `problems` has, by file, why the latest version is not in force.
    """

    def __init__(self, settings: Settings) -> None:
        """Reads the files.

        Raises: ConfigError that names the file, if keys, levels, session policies, templates,
        images or secrets are broken.
        """
        self.problems: dict[Path, str] = {}
        directory = self._directory = settings.levels_dir
        in_cluster = self._in_cluster = settings.cluster is not None
        self.key_files = FollowedKeys(settings)
        self.keys = self.key_files.ring
        self.issuers = IssuersFile(settings.oidc_file)
        # A file must exist to be watched.
        ensure_file(settings.images_path)
        # They are taken before the files are read, so that an edit during the read is noticed.
        images_path = settings.images_path
        images_seen = fingerprints([images_path])
        levels_seen = fingerprints(files_or_folder(table_files, directory) if directory else [])
        self.levels = Levels(load_levels(directory, cluster=in_cluster))
        self._runtimes = Runtimes(settings.runtime)
        self.images = ListedImages(listed(settings), settings.default_images)

        def read_levels() -> Callable[[], None]:
            levels = load_levels(directory, self._runtimes.known, cluster=in_cluster)
            return lambda: self.levels.replace(levels)

        def read_images() -> Callable[[], None]:
            names = listed(settings)
            return lambda: self.images.replace(names)

        self._sources = [
            *self.key_files.sources(),
            Source(None, lambda: [images_path], read_images, False, images_seen),
        ]
        if (issuers := settings.oidc_file) is not None:
            self._sources.append(
                Source(None, lambda: [issuers], self.issuers.reading, True, self.issuers.seen)
            )
        if directory is not None:
            files = partial(files_or_folder, table_files, directory)
            self._sources.append(
                Source(
                    *(directory, files, read_levels, False, levels_seen),
                    prepare=lambda: self._runtimes.ask(),
                )
            )
        self._sources += self._read_policies(settings.session_policies_dir)
        self._sources += self._read_templates(settings.templates_dir)
        values = [each.file for each in settings.secrets.values() if each.file is not None]
        seen = fingerprints(values)
        self.secrets = ConfiguredSecrets(settings.secrets)
        if values:
            self._sources.append(
                Source(None, lambda: values, self.secrets.read, True, seen, secret=True)
            )
        self.tools = ToolRules(settings, LastGood(settings.state_dir / "last-good"))
        self._sources += [self._first_reading(rules) for rules in self.tools.files()]
        self._looking = asyncio.Lock()
        self._recorder: Recorder | None = None
        self._tasks: list[Supervised] = []
        self._looks, self._watches = Rounds(_ROUND_SECONDS), Rounds(_ROUND_SECONDS)
        self._threads = Threads("policy files", 1)
        self._reads = Threads("policy files that are read", 1)
        self._watching: asyncio.Future[None] | None = None
        self._stop = threading.Event()

    def _read_policies(self, directory: Path | None) -> list[Source]:
        if directory is None:
            self.session_policies = SessionPolicies()
            return []
        files = partial(files_or_folder, table_files, directory)
        seen = fingerprints(files())
        self.session_policies = policies = SessionPolicies(directory)
        return [Source(directory, files, lambda: policies.reading(directory), False, seen)]

    def _read_templates(self, directory: Path | None) -> list[Source]:
        if directory is None:
            self.templates = TemplateFiles()
            return []
        files = partial(files_or_folder, table_files, directory)
        seen = fingerprints(files())
        self.templates = templates = TemplateFiles(directory)
        return [Source(directory, files, lambda: templates.reading(directory), False, seen)]

    def _first_reading(self, rules: RuleFiles) -> Source:
        """Activates the rules of tools. A broken file does not prevent the start.

        The first check reads a broken file again, and records that it is broken.
        """
        seen = fingerprints(rules.files())
        problems: dict[Path, str] = {}
        try:
            rules.read()()
        except BrokenFilesError as error:
            error.replace()
            problems = error.problems
        except ConfigError as error:
            problems = dict.fromkeys(_named(rules, seen), str(error))
        except Exception:
            # Any error: what the file governs stays closed, and the rest starts.
            log.exception("a file of policy can't be read")
            named = _named(rules, seen)
            problems = dict.fromkeys(named, f"{named[0]}: {_UNREADABLE}")
        for problem in dict.fromkeys(problems.values()):
            log.error("not in force, what was read in an earlier run stays: %s", problem)
        self.problems |= problems
        seen |= dict.fromkeys(problems, _UNRECORDED)
        return Source(rules.directory, rules.files, rules.read, False, seen)

    async def use(self, runtimes: Runtimes) -> None:
        """Holds levels to the engine's runtimes, from now on. Raises: ConfigError."""
        self._runtimes = runtimes
        if self._directory is not None:
            read = partial(load_levels, self._directory, runtimes.known, cluster=self._in_cluster)
            await self._reads.call(read, _READ_SECONDS)

    def watch(self, recorder: Recorder, tasks: Tasks) -> None:
        """Begins to watch, and to record changes."""
        self._recorder = recorder
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:  # the loop has ended
                self._stop.set()

        self._tasks = [
            tasks.start(TaskName.POLICY, lambda: self._follow(changed), rounds=self._looks),
            tasks.start(
                TaskName.POLICY_WATCH, lambda: self._keep_watch(tell), rounds=self._watches
            ),
        ]

    async def close(self) -> None:
        """Stops watching; the thread has ended when this returns."""
        self._stop.set()
        for task in self._tasks:
            await task.close()
        if self._watching is not None:
            await asyncio.wait([self._watching])

    async def _keep_watch(self, tell: Callable[[], None]) -> None:
        self._watching = await self._threads.begin(lambda: self._watch(tell), _LOOK_SECONDS)
        await asyncio.shield(self._watching)

    def _watch(self, tell: Callable[[], None]) -> None:
        """The thread: reports every change, and occasionally reports without one."""
        while not self._stop.is_set():
            tell()  # of changes while nothing watched
            paths = {path for source in self._sources for path in source.watched()}
            if not paths:
                self._stop.wait(_LOOK_SECONDS)
                continue
            try:
                changes = watch(
                    *paths,
                    watch_filter=None,
                    debounce=_DEBOUNCE_MS,
                    step=STEP_MS,
                    stop_event=self._stop,
                    rust_timeout=int(_LOOK_SECONDS * 1000),
                    yield_on_timeout=True,
                    recursive=False,
                )
                # Only once, because a replaced file is another one, which must be watched anew.
                next(changes, None)
                changes.close()
            except (OSError, RuntimeError) as error:
                # A file is gone, or the kernel has no watch left.
                log.warning("policy files can't be watched, only looked at: %s", error)
                self._stop.wait(_LOOK_SECONDS)

    async def _follow(self, changed: asyncio.Event) -> None:
        changed.set()  # after a restart, missed changes are unknown
        while True:
            with self._watches.round():  # the thread reports repeatedly
                await changed.wait()
            changed.clear()
            with self._looks.round():
                await self.look()

    async def look(self) -> None:
        """Reads files again that have changed since they were last read.

        Raises: TimeoutError if a disk does not answer; what is in force may be outdated then.
        """
        async with self._looking:
            for source in self._sources:
                changes = await self._reads.call(source.changes, _READ_SECONDS)
                if changes:
                    source.seen |= changes
                    await self._reload(source, list(changes))

    async def _reload(self, source: Source, changed: list[Path]) -> None:
        replace: Callable[[], None] | None = None
        problems: dict[Path, str] = {}
        try:
            if source.prepare is not None:
                await source.prepare()
            replace = await self._reads.call(source.read, _READ_SECONDS)
        except BrokenFilesError as error:
            replace, problems = error.replace, error.problems
        except ConfigError as error:
            problems = dict.fromkeys(changed, str(error))
        except ClusterUnavailableError as error:
            problems = dict.fromkeys(changed, error.detail)
        except TimeoutError:
            # The task fails, is restarted, and finds it changed again.
            source.seen.update(dict.fromkeys(changed, _UNRECORDED))
            raise
        except Exception:
            log.exception("a file of policy can't be read")
            problems = dict.fromkeys(changed, f"{changed[0]}: {_UNREADABLE}")
        if replace is not None and source.at_once:
            replace()
        try:
            await self._record(source, changed, problems)
        except Exception as error:
            # The next check finds it changed again.
            source.seen.update(dict.fromkeys(changed, _UNRECORDED))
            if not isinstance(error, PaddockError):
                raise
            problems.setdefault(changed[0], f"the change can't be put on record: {error.detail}")
        else:
            if replace is not None and not source.at_once:
                replace()
        self._note(source, changed, problems)

    async def _record(self, source: Source, changed: list[Path], problems: dict[Path, str]) -> None:
        if self._recorder is None:
            return
        for file in changed:
            await self._recorder.record_system(
                EventDraft(
                    "policy.reloaded",
                    actor="system",
                    result={"ok": file not in problems},
                    args={
                        "file": str(file),
                        "sha256": None if source.secret else source.seen[file] or None,
                    },
                    error=problems.get(file),
                )
            )

    def _note(self, source: Source, changed: list[Path], problems: dict[Path, str]) -> None:
        for file in source.seen:
            self.problems.pop(file, None)
        self.problems.update(problems)
        good = [file for file in changed if file not in problems]
        if good:
            log.info("read again: %s", ", ".join(map(str, good)))
        for problem in dict.fromkeys(problems.values()):
            log.error("not in force, what was read before stays: %s", problem)


def _named(rules: RuleFiles, seen: Mapping[Path, str]) -> list[Path]:
    """The files, or the directory without files, for a problem that concerns all of them."""
    return list(seen) or ([] if rules.directory is None else [rules.directory])
