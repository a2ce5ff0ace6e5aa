"""Finds what an image has: its programs, their loaders, and files with privileges.

It runs in a container of that image, by the mounted interpreter. An image may be hostile, so every
search has a limit, and no link is followed but those of programs.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

from sandbox_agent.enforce.libraries import Libraries, elf_needs
from sandbox_agent.enforce.programs import PATH

_MOST_PROGRAMS = 5_000
_MOST_BYTES = 512 * 1024
_LONGEST = 512
_MOST_DIRECTORIES = 32
_MOST_ENTRIES = 300_000
_MOST_NAMED = 20
_SEARCH_SECONDS = 10.0
_ELF = b"\x7fELF\x02\x01"


def main(path: str, *commands: str) -> None:
    """Prints the facts. `path` is the image's PATH; `commands` are those that levels list."""
    programs = _programs(f"{PATH}:{path}")
    facts = {
        "programs": programs,
        "broken": _broken({name: programs[name] for name in commands if name in programs}),
        **_privileged(),
    }
    sys.stdout.write(json.dumps(facts))


def _programs(path: str) -> dict[str, str]:
    """The real path of each program by its name, as far as there is room."""
    found: dict[str, str] = {}
    size = 0
    directories = dict.fromkeys(each for each in path.split(":") if each.startswith("/"))
    for directory in list(directories)[:_MOST_DIRECTORIES]:
        for name in _names(directory):
            real = os.path.realpath(os.path.join(directory, name))
            if name in found or len(real) > _LONGEST or not _is_program(real):
                continue
            size += len(name) + len(real)
            if len(found) >= _MOST_PROGRAMS or size > _MOST_BYTES:
                return found
            found[name] = real
    return found


def _names(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    return
                if entry.name.isascii() and entry.name.isprintable():
                    yield entry.name
    except OSError:
        return


def _is_program(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)


def _broken(programs: dict[str, str]) -> dict[str, str]:
    """Why programs can't start: their loader is missing, or they are no programs of this machine's.

    A program's libraries are found as the agent finds them when a session starts.
    """
    found: dict[str, str] = {}
    libraries = Libraries()
    for name, path in programs.items():
        try:
            with open(path, "rb") as file:
                start = file.read(6)
                loader = elf_needs(file.fileno(), "/").loader if start == _ELF else None
            if start[:2] != b"#!" and start != _ELF:
                found[name] = "it is neither a program for this machine nor a script"
            elif loader is not None and not os.path.exists(loader):
                found[name] = f"its loader {loader:.200} is missing"
            else:
                libraries.add(path)
        except OSError as error:
            found[name] = error.strerror or "it can't be read"
    return found


def _privileged(top: str = "/") -> dict[str, Any]:
    """Files with setuid or setgid bits, which have no effect; and how far the search came."""
    found: list[str] = []
    count = entries = 0
    until = time.monotonic() + _SEARCH_SECONDS
    device = os.stat(top).st_dev
    waiting = [top]
    while waiting:
        for entry in _entries(waiting.pop()):
            entries += 1
            if entries > _MOST_ENTRIES or time.monotonic() > until:
                return {"setuid": found, "setuid_count": count, "entries": entries, "whole": False}
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                waiting.append(entry.path)
            elif stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                count += 1
                if len(found) < _MOST_NAMED:
                    found.append(ascii(entry.path)[1:-1][:_LONGEST])
    return {"setuid": found, "setuid_count": count, "entries": entries, "whole": True}


def _entries(directory: str) -> "Iterator[os.DirEntry[str]]":
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        return
