"""Starts helpers: bounded processes that have only the rights of a workspace's user.

The control plane itself opens nothing that a sandbox wrote. A helper does, in directories that were
opened for it. `helper_limits.py` is its main function.
"""

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orchestrator

_ROOT = Path(orchestrator.__file__).parents[1]
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from orchestrator.host.workspace.helper_limits import main;"
    " from {} import perform; sys.exit(main(sys.argv[1:], perform))"
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANSWER_BYTES = 32 * 1024 * 1024


class HelperError(Exception):
    """A helper gave no answer."""


class LateHelperError(HelperError):
    """The helper did not answer in time."""


class LongAnswerError(HelperError):
    """The helper's answer is too long."""


@dataclass(frozen=True, slots=True)
class Helper:
    """What a helper runs, as whom, and its bounds.

    `module` has the function `perform`, which gets a request and returns the answer. `seconds`
    limits its time, `file_bytes`, unless it is None, the size of the files that it writes.
    """

    module: str
    uid: int
    seconds: float
    file_bytes: int | None = None

    def ask(
        self,
        request: Mapping[str, Any],
        directories: Mapping[str, Path],
        files: Mapping[str, int] | None = None,
        *,
        asked: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """The answer to a request; blocks, no longer than `seconds`.

        The directories are opened, and added to the request as descriptors, as are `files`, which
        are open. `asked` is called once the helper has the request. An answer with `error` says
        what failed. Raises: HelperError, OSError.
        """
        with ExitStack() as opened:
            # Opened here, because the helper can't enter the directories above them.
            handles = dict(files or {})
            for name, path in directories.items():
                handles[name] = os.open(path, _DIRECTORY)
                opened.callback(os.close, handles[name])
            helper = opened.enter_context(self._started([*handles.values()]))
            expired = threading.Event()

            def expire() -> None:
                expired.set()
                helper.kill()

            expiry = threading.Timer(self.seconds, expire)
            expiry.daemon = True
            expiry.start()
            try:
                answer = _exchanged(helper, json.dumps({**request, **handles}).encode(), asked)
            finally:
                expiry.cancel()
                helper.kill()
        if not answer and expired.is_set():
            raise LateHelperError
        return _parsed(answer)

    def _started(self, handles: list[int]) -> subprocess.Popen[bytes]:
        bounds = (self.uid, math.ceil(self.seconds), self.file_bytes or 0, os.getpid())
        return subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _START.format(self.module)),
                *(str(_ROOT), *map(str, bounds)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            pass_fds=handles,
        )


def _exchanged(helper: subprocess.Popen[bytes], request: bytes, asked: Callable[[], None]) -> bytes:
    assert helper.stdin is not None and helper.stdout is not None  # noqa: S101, PT018
    try:
        helper.stdin.write(request)
        helper.stdin.close()
    except BrokenPipeError:
        return b""
    asked()
    return helper.stdout.read(_ANSWER_BYTES + 1)


def _parsed(text: bytes) -> dict[str, Any]:
    if len(text) > _ANSWER_BYTES:
        raise LongAnswerError
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise HelperError from None
    if not isinstance(answer, dict):
        raise HelperError
    return answer
