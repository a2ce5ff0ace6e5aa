"""The operator's rules of tools: their files, and copies of what was read of them last.

A start that finds a file broken uses the copy, as if the control plane had gone on running.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)


class LastGood:
    """Copies of what was read last without a mistake, in a folder of the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, kind: str) -> dict[str, str]:
        """Texts by the paths that they are from; empty where there is no copy."""
        try:
            texts = json.loads(self._file(kind).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            return {}
        return texts

    def save(self, kind: str, texts: Mapping[str, str]) -> None:
        """Replaces the copies as a whole. One that can't be written is only missed later."""
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
            log.warning("no copy of the %s could be kept: %s", kind, error)

    def _file(self, kind: str) -> Path:
        return self._directory / f"{kind}.json"
