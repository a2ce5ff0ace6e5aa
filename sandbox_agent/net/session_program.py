"""The `session` program: asks the control plane about the session that it runs in."""

import json
import os
import shutil
import socket
import sys
from collections.abc import Sequence

from sandbox_agent.decide.protocol import QUESTIONS_DIR, QUESTIONS_SOCKET_NAME

_WRONG, _UNAVAILABLE = 2, 3
_SECONDS = 15.0
_MOST_ANSWER_BYTES = 64 * 1024


def main() -> int:
    """Asks with the program's arguments, prints the answer, and returns the exit status."""
    words = sys.argv[1:]
    try:
        if words[:1] == ["propose"]:
            return _propose(words[1:])
        return _print(_ask(words))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _failed(f"the control plane does not answer: {error}", _UNAVAILABLE)


def _ask(words: Sequence[str]) -> dict[str, object]:
    """The control plane's answer. Raises: OSError, ValueError, TypeError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(os.path.join(QUESTIONS_DIR, QUESTIONS_SOCKET_NAME))
        connection.sendall(json.dumps(words).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            data = connection.recv(_MOST_ANSWER_BYTES)
            if not data:
                raise ValueError("it closed the connection: too many or too long questions")
            answer += data
    members = json.loads(answer)
    if not isinstance(members, dict):
        raise TypeError("the answer is malformed")
    return members


def _print(answer: dict[str, object]) -> int:
    sys.stdout.write(str(answer["stdout"]))
    sys.stderr.write(str(answer["stderr"]))
    return int(str(answer["exit_code"]))


def _propose(args: Sequence[str]) -> int:
    """Writes standard input to a file. In proposal mode, the workspace stages every write."""
    if len(args) != 1:
        return _failed("propose takes 1 argument: a path in the workspace", _WRONG)
    answer = _ask(["workspace"])
    if answer["exit_code"] != 0:
        return _print(answer)
    path, workspace = os.path.realpath(args[0]), str(answer["stdout"]).rstrip("\n")
    if not path.startswith(workspace + "/"):
        return _failed(f"{args[0]} is not in {workspace}", _WRONG)
    answer = _ask(["allowed", "world.write", os.path.relpath(path, workspace)])
    if answer["exit_code"] != 0:
        return _failed(f"{answer['stdout']}{answer['stderr']}".rstrip("\n"), 1)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        return _failed(f"{args[0]}: {error.strerror}", 1)
    return 0


def _failed(message: str, status: int) -> int:
    sys.stderr.write(f"session: {message}\n")
    return status
