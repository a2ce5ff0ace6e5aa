"""The operator's current rules of tools: their files, and copies of their last valid versions.

A start that finds a broken file uses its copy, as if the control plane had kept running.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)


class LastGood:
    """Copies of the last valid versions, in a folder of the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, kind: str) -> dict[str, str]:
        """Texts by their original paths; empty if there is no copy."""
        try:
            texts = json.loads(self._file(kind).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            return {}
        return texts

    def save(self, kind: str, texts: Mapping[str, str]) -> None:
        """Replaces all copies at once. A failure matters only if a later start needs them."""
        if self.load(kind) == texts:
            return
        path = self._file(kind)
        draft = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            with draft.open("w", encoding="utf-8") as file:
                json.dump(dict(texts), file)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
        except OSError as error:
            log.warning("could not save a copy of the %s: %s", kind, error)

    def _file(self, kind: str) -> Path:
        return self._directory / f"{kind}.json"
