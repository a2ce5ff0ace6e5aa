"""The records of images that are not ours, which `paddock images add` has checked."""

import logging
from pathlib import Path

from pydantic import ValidationError

from orchestrator.sandbox.images.image_facts import VERSION, ImageFacts
from orchestrator.settings.operator_edits import editing, replace

log = logging.getLogger(__name__)

_DIRECTORY = "image-facts"
_MOST_BYTES = 4 * 1024 * 1024
_MOST_RECORDS = 256


class CheckedImages:
    """Reads and writes the records, one file for each image id."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / _DIRECTORY
        # By file, with the file's state when it was read.
        self._read: dict[Path, tuple[tuple[int, int, int], ImageFacts | None]] = {}

    def of(self, image_id: str) -> ImageFacts | None:
        """The record of the image with that id; None if it was not checked."""
        found = self._load(self._file(image_id))
        return found if found is not None and found.id == image_id else None

    def named(self, name: str) -> list[ImageFacts]:
        """The records of all images that were added by that name."""
        files = sorted(self._directory.glob("*.json"))[:_MOST_RECORDS]
        found = filter(None, map(self._load, files))
        return [facts for facts in found if name in facts.names]

    def keep(self, facts: ImageFacts) -> None:
        """Writes a record, with the names that the image was added by before.

        A name belongs to one image. Raises: ConfigError.
        """
        path = self._file(facts.id)
        for name in facts.names:
            self.forget(name)
        with editing(path):
            before = self.of(facts.id)
            names = sorted({*facts.names, *(before.names if before else ())})
            replace(path, facts.model_copy(update={"names": names}).model_dump_json())

    def forget(self, name: str) -> None:
        """Takes a name from every record, and removes those that have none left.

        Raises: ConfigError.
        """
        for facts in self.named(name):
            path = self._file(facts.id)
            with editing(path):
                names = [each for each in facts.names if each != name]
                if names:
                    replace(path, facts.model_copy(update={"names": names}).model_dump_json())
                else:
                    path.unlink(missing_ok=True)

    def _file(self, image_id: str) -> Path:
        digits = "".join(each for each in image_id.removeprefix("sha256:") if each.isalnum())
        return self._directory / f"{digits[:64]}.json"

    def _load(self, path: Path) -> ImageFacts | None:
        try:
            status = path.stat()
        except OSError:
            self._read.pop(path, None)
            return None
        state = (status.st_ino, status.st_mtime_ns, status.st_size)
        if path not in self._read or self._read[path][0] != state:
            self._read[path] = state, _parsed(path)
        return self._read[path][1]


def _parsed(path: Path) -> ImageFacts | None:
    try:
        with path.open("rb") as file:
            facts = ImageFacts.model_validate_json(file.read(_MOST_BYTES))
    except (OSError, ValidationError) as error:
        log.warning("the record of an image can't be read: %s: %s", path, type(error).__name__)
        return None
    return facts if facts.version == VERSION else None
