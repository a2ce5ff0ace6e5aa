"""Images with real programs for tools, and with the servers that some of them use.

The engine keeps the layer with the programs; adding this checkout's agent takes seconds.
"""

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker

from images.builder import build
from images.recipes import SANDBOX
from tests.support.limits import PROGRAM_SECONDS

# One image has the servers and the clients.
PACKAGES = ("gdb", "nodejs", "postgresql", "redis-server", "sqlite3")
DATABASE = "appdb"
USER = "agent_user"
_NOTIFY = "notify"
_POSTGRES = f"""\
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
"$bin/initdb" -D /data/db -A trust -N --locale=C --encoding=UTF8 >/dev/null
"$bin/postgres" --single -D /data/db postgres >/dev/null <<'SQL'
CREATE ROLE {USER} LOGIN
CREATE DATABASE {DATABASE} OWNER {USER}
SQL
exec "$bin/postgres" -D /data/db -c listen_addresses= -c fsync=off -k /run/postgresql
"""
_REDIS = (
    "exec redis-server --port 0 --unixsocket /run/redis/redis.sock --unixsocketperm 777 "
    '--save "" --dir /data --supervised systemd'
)


@contextmanager
def programs_image() -> Iterator[str]:
    """This checkout's sandbox image with the programs and servers added."""
    name = f"paddock/sandbox:test-programs-{secrets.token_hex(4)}"
    build(name, recipe=SANDBOX._replace(more_packages=PACKAGES), report=lambda _line: None)
    try:
        yield name
    finally:
        with closing(docker.APIClient(version="auto")) as client:
            client.remove_image(name, noprune=True)


@contextmanager
def postgresql(image: str) -> Iterator[Path]:
    """A PostgreSQL server; yields its socket directory. agent_user owns the database appdb."""
    with _server(image, _POSTGRES, "/run/postgresql") as directory:
        yield directory


@contextmanager
def redis(image: str) -> Iterator[Path]:
    """A Redis server; yields the directory of its socket, `redis.sock`."""
    with _server(image, _REDIS, "/run/redis") as directory:
        yield directory


@contextmanager
def _server(image: str, script: str, target: str) -> Iterator[Path]:
    """The server reports readiness by a datagram, as services do to systemd."""
    directory = Path(tempfile.mkdtemp(prefix="paddock-server-"))
    directory.chmod(0o777)  # the server runs as another user
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(directory / _NOTIFY))
            told.settimeout(PROGRAM_SECONDS)
            (directory / _NOTIFY).chmod(0o777)
            with _container(image, script, directory, target):
                while b"READY=1" not in told.recv(4096):
                    pass
                yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def _container(image: str, script: str, source: Path, target: str) -> Iterator[None]:
    """Runs without a network, as a user other than root, until the `with` block ends."""
    with closing(docker.APIClient(version="auto")) as client:
        config = client.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            tmpfs={"/data": "mode=1777", "/tmp": "mode=1777"},
            mounts=[docker.types.Mount(target, str(source), type="bind")],
        )
        container = client.create_container(
            image,
            entrypoint=["sh", "-c", script],
            command=[],
            environment={"NOTIFY_SOCKET": f"{target}/{_NOTIFY}"},
            user="postgres",
            host_config=config,
        )
        try:
            client.start(container)
            yield
        finally:
            client.remove_container(container, force=True, v=True)
