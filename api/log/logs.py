"""The log: one line per record on standard output, as JSON or for people, without secrets."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from api.log.lines import make_formatter
from api.log.log_file import LogFile
from orchestrator.ground.config_error import ConfigError

STDOUT = 1
# Records that may wait for a slow reader; further ones are dropped and counted.
_MOST_WAITING = 10_000
_CLOSE_SECONDS = 2.0
_GROUP_SECONDS = 0.02
_MOST_IN_GROUP = 128


class LogSettings(Protocol):
    """The settings of the log, of a control plane and of a gateway."""

    @property
    def log_file(self) -> Path | None:
        """The file instead of standard output."""

    @property
    def log_format(self) -> str | None:
        """json or console; None: by whether it is a terminal."""

    @property
    def log_level(self) -> str:
        """The lowest level that is logged."""

    @property
    def admin_key(self) -> SecretStr | None:
        """A secret that is cut out of every line."""


@contextmanager
def logging_to_stdout(
    settings: LogSettings, descriptor: int = STDOUT
) -> Iterator[Callable[[str], None]]:
    """Sends every record of this process there, or to the settings' file, while the block runs.

    Yields a function that prints a line for the person who started the program, whatever the log
    level; if the log is JSON, as a line of JSON. Raises: ConfigError if the file can't be written.
    """
    file = None if settings.log_file is None else _open(settings.log_file)
    tty = file is None and os.isatty(descriptor)
    kind = settings.log_format or ("console" if tty else "json")
    secret = settings.admin_key.get_secret_value() if settings.admin_key is not None else None
    handler = LogWriter(descriptor if file is None else file.descriptor, file=file)
    handler.setFormatter(
        make_formatter(
            kind,
            colours=tty and "NO_COLOR" not in os.environ,
            secrets=() if secret is None else (secret,),
        )
    )
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    try:
        yield handler.say_as_record if kind == "json" else handler.say
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
        if file is not None:
            file.close()


def _open(path: Path) -> LogFile:
    try:
        return LogFile(path)
    except OSError as error:
        raise ConfigError(f"PADDOCK_LOG_FILE: {path}: {error.strerror}") from None


class LogWriter(logging.Handler):
    """Writes lines in a separate thread, so that a slow reader delays nothing."""

    def __init__(
        self, descriptor: int, most_waiting: int = _MOST_WAITING, file: LogFile | None = None
    ) -> None:
        """`file` is the file behind the descriptor if its size is to be limited."""
        super().__init__()
        self._descriptor = descriptor
        self._file = file
        # A queue without a limit of its own, which costs a tenth of one with.
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        self._dropped = 0
        self._closed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Formats the record here, in its context, and queues it."""
        try:
            if not self._queue(self._encoded(record)):
                self._dropped += 1
        except Exception:  # noqa: BLE001 - as in every handler: logging must not fail the caller
            self.handleError(record)

    def say(self, text: str) -> None:
        """Queues a line unchanged."""
        self._queue(text.encode("utf-8", "backslashreplace") + b"\n")

    def say_as_record(self, text: str) -> None:
        """Queues a line as a record, whatever the log level."""
        self.emit(logging.LogRecord("paddock", logging.INFO, __file__, 0, text, (), None))

    def close(self) -> None:
        """Writes the queued lines, within a short time."""
        if not self._closed:
            self._closed = True
            self._ending.set()
            self._lines.put(None)
            self._thread.join(_CLOSE_SECONDS)
        super().close()

    def _queue(self, line: bytes) -> bool:
        """Returns False if too many lines wait already."""
        if self._lines.qsize() >= self._most_waiting:
            return False
        self._lines.put(line)
        return True

    def _write_all(self) -> None:
        ended = False
        while not ended:
            lines = self._group()
            ended = None in lines
            # If the reader has gone, the lines are dropped.
            with suppress(OSError):
                self._write(b"".join(line for line in lines if line is not None))
                if self._file is not None:
                    self._file.rotate()
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    self._write(self._encoded(_dropped_record(dropped)))

    def _group(self) -> list[bytes | None]:
        """The next lines, None at the end.

        Lines that follow soon belong to the group, because each alone would wake this thread.
        """
        lines = [self._lines.get()]
        if self._lines.qsize() < _MOST_IN_GROUP:  # otherwise there is enough for a group
            self._ending.wait(_GROUP_SECONDS)
        with suppress(queue.Empty):
            while len(lines) < _MOST_IN_GROUP:
                lines.append(self._lines.get_nowait())
        return lines

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"


def _dropped_record(count: int) -> logging.LogRecord:
    text = "%d lines of the log were dropped: the reader was too slow"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)
