"""Content of an owner with a word by which it is found again in files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.api.conftest import Api
from tests.support.fake_agent import Play

CANARY = "c4n4ry0f7h3f1l3"
REASON = {"reason": "asked for by letter"}


async def used(api: Api, session_id: str, key: str, **body: Any) -> None:
    """A session that has the canary in every place, and has ended."""
    api.agents.plays["printf"] = Play(f"{CANARY}\n".encode())
    body = {"permission_level": "high", "labels": {"is": CANARY}, **body}
    made = await api.session(key=key, id=session_id, env={"TOKEN": CANARY}, **body)
    path = f"/api/sessions/{session_id}"
    await api.json("POST", f"{path}/exec", json={"argv": ["printf", CANARY]}, key=key)
    await api.call("PUT", f"{path}/files/{CANARY}.txt", data=CANARY.encode(), key=key)
    Path(made["workspace"]["root_dir"], "kept.txt").write_text(CANARY)
    await api.json("POST", f"{path}/memory", json={"text": f"note {CANARY}"}, key=key)
    await api.call("DELETE", path, key=key)


async def has_itself(api: Api, key: str) -> None:
    """A secret and a hook of the key, whose names have the canary."""
    secret = {"value": "a-value-of-the-key", "hosts": [f"{CANARY}.example"]}
    await api.json("PUT", "/api/secrets/token", json=secret, key=key)
    hook = {"url": f"http://127.0.0.1:9/{CANARY}", "events": ["session.closed"]}
    await api.json("POST", "/api/hooks", json=hook, key=key, status=201)


def holding(directory: Path, word: str = CANARY) -> Iterator[Path]:
    """The files below a directory whose bytes or names have the word; some may vanish meanwhile."""
    for parent, _, names in os.walk(directory):
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                plain = path.is_file() and not path.is_symlink()
                if plain and (word in path.name or _has(path, word.encode())):
                    yield path


def _has(path: Path, word: bytes) -> bool:
    """Whether a file has the word; the holes of sparse ones are not read."""
    with path.open("rb", buffering=0) as file, suppress(OSError):  # there is no more data
        end = 0
        while True:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            if word in os.pread(file.fileno(), end - begin, begin):
                return True
    return False
