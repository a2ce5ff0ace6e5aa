"""The steps of a build, as they are carried out. Pure.

Files are placed in the workspace only, which is the home of a sandbox: what a step would put
elsewhere is refused before anything runs.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.compat.e2b.builds.bodies import StepBody
from orchestrator.ground.errors import ValidationError
from sandbox_agent.decide.variables import allowed_variable

HOME = "/home/user"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A Dockerfile begins there. What runs there begins in the home instead.
_TOP = "/"
_MODE = re.compile(r"0?[0-7]{3}")
_REFERENCE = re.compile(r"\\\$|\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_MOST_VALUE = 32 * 1024


@dataclass(frozen=True, slots=True)
class Run:
    """A line for a shell, in a directory below the home, with variables."""

    number: int
    line: str
    directory: str
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Copy:
    """Uploaded files: what `source` matches in them goes to `destination`, an absolute path."""

    number: int
    files: str
    source: str
    destination: str
    mode: str | None


@dataclass(frozen=True, slots=True)
class Enter:
    """A directory below the home, which is made if it is missing."""

    number: int
    directory: str


Step = Run | Copy | Enter


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps, and what is in force after the last one."""

    steps: tuple[Step, ...]
    directory: str
    variables: Mapping[str, str]


def plan(given: Sequence[StepBody], variables: Mapping[str, str], directory: str = HOME) -> Plan:
    """What is done, beginning with those variables. Raises: ValidationError naming the step."""
    found: list[Step] = []
    known = dict(variables)
    for number, step in enumerate(given, 1):
        args = step.args or []
        match step.type:
            case "RUN":
                _need(number, step, 1)
                found.append(Run(number, args[0], directory, dict(known)))
            case "COPY":
                _need(number, step, 2)
                found.append(_copy(number, step, args, directory))
            case "ENV":
                known.update(_variables(number, args, known))
            case "WORKDIR":
                _need(number, step, 1)
                directory = _directory(number, args[0], directory)
                found.append(Enter(number, directory))
            case "USER":
                pass  # every step runs as the session's user
    return Plan(tuple(found), directory, known)


def _need(number: int, step: StepBody, count: int) -> None:
    if len(step.args or []) < count or not (step.args or [""])[0]:
        raise _wrong(number, f"{step.type} needs {count} arguments")


def _copy(number: int, step: StepBody, args: Sequence[str], directory: str) -> Copy:
    if step.files_hash is None:
        raise _wrong(number, "COPY needs filesHash")
    source = posixpath.normpath(args[0])
    if source.startswith("/") or source.split("/", 1)[0] == ".." or "\0" in source:
        raise _wrong(number, "the source of COPY must be below the directory of the build")
    mode = args[3] if len(args) > 3 and args[3] else None
    if mode is not None and not _MODE.fullmatch(mode):
        raise _wrong(number, "the mode of COPY must be three octal digits")
    wanted = args[1]
    placed = _kept(number, "COPY", posixpath.join(directory, wanted))
    slash = "/" if wanted.endswith(("/", "/.")) or wanted == "." else ""
    return Copy(number, step.files_hash, source, placed + slash, mode)


def _directory(number: int, given: str, present: str) -> str:
    if posixpath.normpath(given or ".") == _TOP:
        return HOME
    return _kept(number, "WORKDIR", posixpath.join(present, given))


def _kept(number: int, kind: str, path: str) -> str:
    """The path, which a snapshot of the workspace keeps."""
    path = posixpath.normpath(path)
    if "\0" in path or not (path == HOME or path.startswith(f"{HOME}/")):
        shown = path[:256]
        raise _wrong(number, f"{kind} {shown}: a template keeps what is in {HOME} only")
    return path


def _variables(number: int, args: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    if not args or len(args) % 2:
        raise _wrong(number, "ENV needs names and values in turn")
    found = {}
    for name, value in zip(args[::2], args[1::2], strict=True):
        if not allowed_variable(name, None):
            raise _wrong(number, f"ENV: not a name: {name[:64]}")
        found[name] = _filled(number, value, known)
    return found


def _filled(number: int, value: str, known: Mapping[str, str]) -> str:
    """The value, with `$NAME` and `${NAME}` replaced, as a Dockerfile means them."""

    def one(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        return known.get(name, _PATH if name == "PATH" else "")

    pieces, size, at = [], 0, 0
    for found in _REFERENCE.finditer(value):
        pieces += [value[at : found.start()], one(found)]
        at = found.end()
        size += len(pieces[-1]) + len(pieces[-2])
        if size > _MOST_VALUE:
            break
    pieces.append(value[at:])
    filled = "".join(pieces)
    if len(filled.encode("utf-8", "replace")) > _MOST_VALUE or "\0" in filled:
        raise _wrong(number, f"ENV: a value has at most {_MOST_VALUE} bytes, and no NUL")
    return filled


def _wrong(number: int, text: str) -> ValidationError:
    return ValidationError(f"step {number}: {text}", field=f"steps.{number - 1}.args")
