"""Engines 20.10 to 29: the client speaks the newest API of each, and no other."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from orchestrator.host.engine.docker import DockerEngine
from tests.support.limits import WAIT_SECONDS

# What engines announce: their version, their newest API, their oldest.
ENGINES = [
    ("20.10.24", "1.41", "1.12"),
    ("23.0.6", "1.42", "1.12"),
    ("25.0.5", "1.44", "1.24"),
    ("26.1.5", "1.45", "1.24"),
    ("28.2.2", "1.50", "1.24"),
    ("29.0.0", "1.52", "1.44"),
]
# With the containerd image store, an image's id is the digest of its manifest or index, and the
# list says the same.
IMAGE = {
    "Id": f"sha256:{'a' * 64}",
    "RepoTags": ["paddock/sandbox:latest"],
    "RepoDigests": [f"paddock/sandbox@sha256:{'a' * 64}"],
    "Labels": {"paddock.protocol": "6"},
    "Config": {"Labels": {"paddock.protocol": "6"}},
}


@contextmanager
def announcing(version: str, newest: str, oldest: str) -> Iterator[tuple[str, list[str]]]:
    """An engine that answers paths of its API's versions only; yields its address and the paths."""
    asked: list[str] = []
    answers = {
        "/version": {"Version": version, "ApiVersion": newest, "MinAPIVersion": oldest},
        "/info": {"ServerVersion": version, "CgroupVersion": "2", "Runtimes": {"runc": {}}},
        "/images/json": [IMAGE],
        "/images/paddock/sandbox/json": IMAGE,
    }

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            asked.append(path)
            name, answer = path, answers.get(path)
            if path.startswith("/v1."):
                number, _, rest = path[2:].partition("/")
                name = f"/{rest}"
                within = _minor(oldest) <= _minor(number) <= _minor(newest)
                answer = answers.get(name) if within else None
            data = json.dumps(answer or {"message": f"{path}: unsupported"}).encode()
            self.send_response(400 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join(WAIT_SECONDS)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


@pytest.mark.parametrize(("version", "newest", "oldest"), ENGINES)
async def test_the_newest_api_of_an_engine_is_spoken(
    version: str, newest: str, oldest: str
) -> None:
    with announcing(version, newest, oldest) as (address, asked):
        engine = DockerEngine("0a1b2c3d", host=address, timeout=WAIT_SECONDS, threads=1)
        try:
            assert (await engine.info()).version == version
            one = await engine.image("paddock/sandbox")
            listed = await engine.images(["paddock/sandbox"])
        finally:
            await engine.close()
    assert one is not None
    assert listed == {"paddock/sandbox": one}
    assert one.labels == {"paddock.protocol": "6"}
    assert {path.split("/")[1] for path in asked if path != "/version"} == {f"v{newest}"}
