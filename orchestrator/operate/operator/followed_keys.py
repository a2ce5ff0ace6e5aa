"""The keys in force, which follow the files that have them, or the source that a cluster names."""

from collections.abc import Callable

from orchestrator.cluster.alone import FileKeys
from orchestrator.cluster.base import KeySource
from orchestrator.ground.tasks import Tasks
from orchestrator.rules.access.admin_key import ADMIN_KEY_FILE
from orchestrator.rules.access.key_entries import load_keys
from orchestrator.settings.settings import Settings
from orchestrator.settings.watched_files import Source, ensure_file, fingerprint, fingerprints


class FollowedKeys:
    """`ring` has the keys. `source` is where they are read again: at first this node's files."""

    def __init__(self, settings: Settings) -> None:
        """Reads the files. Raises: ConfigError that names the file."""
        self._path = settings.keys_path
        self._admin_key_path = settings.state_dir / ADMIN_KEY_FILE
        # A file must exist to be watched.
        if settings.keys_file is None:
            ensure_file(self._path)
        # They are taken before the files are read, so that an edit during the read is noticed.
        self._seen = fingerprints([self._path])
        self._admin_key_seen = fingerprints([self._admin_key_path])
        self.ring = self._loaded = load_keys(settings)
        self.source: KeySource = FileKeys(settings)

    def sources(self) -> list[Source]:
        """The files after whose changes the keys are read again."""
        keys = Source(
            *(None, lambda: [self._path], self._read, True, self._seen), prepare=self._load
        )
        if self.ring.admin_key_file is None:
            return [keys]
        # If there was none, it has just been created.
        seen = {file: sha or fingerprint(file) for file, sha in self._admin_key_seen.items()}
        admin_key = Source(
            *(None, lambda: [self._admin_key_path], self._read, True, seen),
            secret=True,
            prepare=self._load,
        )
        return [keys, admin_key]

    async def use(self, source: KeySource, tasks: Tasks) -> None:
        """Has the source's keys instead, from now on. Raises: the errors of `KeySource.load`."""
        if source is not self.source:
            self.source = source
            await self.reload()
            source.follow(self.ring, tasks)

    async def reload(self) -> None:
        """Reads the source again. Raises: the errors of `KeySource.load`."""
        await self._load()
        self.ring.replace(self._loaded)

    async def _load(self) -> None:
        self._loaded = await self.source.load()

    def _read(self) -> Callable[[], None]:
        keys = self._loaded
        return lambda: self.ring.replace(keys)
