"""A PostgreSQL server of its own: directory, port, user and password; what it confirms is durable.

The programs are the system's (`scripts/postgres.sh`). The server refuses to run as root, so root
runs it as the user that its package made.
"""

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

USER = "paddock"
_SERVICE_USER = "postgres"
# A slow disk syncs a new directory of 39 MB, and a killed server's log is replayed.
_SECONDS = 300
# Debian, then PostgreSQL's own packages for RHEL and Fedora.
_DIRECTORIES = ("/usr/lib/postgresql", "/usr/pgsql-*")
# Small and quick, and each commit still waits for the disk. Nothing replicates it.
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
}


class DatabaseError(Exception):
    """The server can't be made, started or used; the message says why in one line."""


def programs() -> Path | None:
    """The folder of the newest server's programs; None if there is none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    root = Path("/")
    folders = [
        initdb.parent
        for pattern in _DIRECTORIES
        for place in (f"{pattern}/bin/initdb", f"{pattern}/*/bin/initdb")
        for initdb in root.glob(place.lstrip("/"))
    ]
    return max(folders, key=_version, default=None)


def _version(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[-1]) if numbers else 0


@dataclass(frozen=True, slots=True)
class Database:
    """A server in `directory`, which others must be able to enter; `within` starts its commands.

    `certificate` and `key`, files that the server's user can read, let clients use TLS.
    """

    directory: Path
    host: str
    port: int
    within: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None

    @property
    def password_file(self) -> Path:
        """Holds the password of the user `paddock`; mode 0600."""
        return self.directory / "password"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.directory / "log"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = "postgres", *, password: bool = True) -> str:
        """Where clients connect to, as user `paddock`, with the password unless told otherwise."""
        said = f":{quote(self.password_file.read_text().strip(), safe='')}" if password else ""
        return f"postgresql://{USER}{said}@{self.host}:{self.port}/{database}"

    def make(self, *, sync: bool = True) -> None:
        """Makes the directory and the server's files; does nothing if they are there.

        `sync` False leaves the first sync to the kernel, for servers that live as long as a test.
        Raises: DatabaseError.
        """
        if (self.directory / "made").exists():
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, mode=0o755)
        owner = _account()
        descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(24)}\n")
        if owner is not None:
            for path in (self.directory, self.password_file):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}")
        self._run(
            *("initdb", "--pgdata", str(self._data), *options),
            *("--pwfile", str(self.password_file), *(() if sync else ("--no-sync",))),
        )
        # Whoever is on its own network, and knows the password.
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        (self.directory / "made").touch()

    def start(self) -> None:
        """Starts it and returns when it answers; does nothing if it runs. Raises: DatabaseError."""
        if self.pid() is not None:
            return
        settings = _SETTINGS | self._own_settings()
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        wait, log = ("-w", "-s", "-t", str(_SECONDS)), ("--log", str(self.log))
        try:
            self._run("pg_ctl", "start", "-D", str(self._data), *wait, *log, "-o", options)
        except DatabaseError as error:
            raise DatabaseError(f"{error} {self._last_line()}: its log is {self.log}") from None

    def stop(self) -> None:
        """Ends it, and all connections; does nothing if it does not run. Raises: DatabaseError."""
        if self.pid() is not None:
            self._run("pg_ctl", "stop", "-D", str(self._data), "-w", "-s", "-m", "fast")

    def kill(self) -> None:
        """Ends it as the loss of its machine would; a later start replays its log."""
        # One that was being started while the others were listed is in the next list.
        while found := self.processes():
            self._signal(signal.SIGKILL)
            psutil.wait_procs(found, timeout=_SECONDS)

    def pause(self) -> None:
        """Stops all of its processes where they are: connections stay, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets its processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def pid(self) -> int | None:
        """The first process; None if none runs. A file that a killed server left is not believed.

        The pid is the one of this process's namespace, whatever `within` says.
        """
        return next((process.pid for process in self.processes()), None)

    def processes(self) -> list[psutil.Process]:
        """All of its processes, known by their directory, the oldest first."""
        data = str(self._data)
        found = []
        for process in psutil.process_iter():
            try:
                if process.name() == "postgres" and process.cwd() == data:
                    found.append((process.create_time(), process.pid, process))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return [process for _, _, process in sorted(found, key=lambda each: each[:2])]

    def remove(self) -> None:
        """Ends it and removes its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Runs one statement and returns its rows, one a line. Raises: DatabaseError."""
        quiet = ("--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1")
        return self._run(
            *("psql", *quiet, "--dbname", self.url(database, password=False)),
            *("--command", statement),
            password=self.password_file.read_text().strip(),
        )

    def dump(self, database: str) -> str:
        """All that the database has, as `pg_dump` writes it. Raises: DatabaseError."""
        url = self.url(database, password=False)
        return self._run(
            *("pg_dump", "--dbname", url), password=self.password_file.read_text().strip()
        )

    def _last_line(self) -> str:
        try:
            return self.log.read_text(errors="replace").strip().splitlines()[-1]
        except (OSError, IndexError):
            return ""

    def _own_settings(self) -> dict[str, str]:
        own = {
            "port": str(self.port),
            "listen_addresses": self.host,
            "unix_socket_directories": "",
        }
        if self.certificate is not None:
            own |= {
                "ssl": "on",
                "ssl_cert_file": str(self.certificate),
                "ssl_key_file": str(self.key),
            }
        return own

    def _run(self, program: str, *arguments: str, password: str | None = None) -> str:
        folder = programs()
        if folder is None:
            raise DatabaseError("PostgreSQL is missing: `make postgres` installs it or says how to")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        if password is not None:
            environment["PGPASSWORD"] = password
        # A file, as the server that is started inherits it: a pipe would never end.
        with tempfile.TemporaryFile() as said:
            try:
                done = subprocess.run(
                    [*self.within, *_as_service(), str(folder / program), *arguments],
                    cwd="/",
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    timeout=_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise DatabaseError(f"{program} has not ended in {_SECONDS} s") from None
            said.seek(0)
            text = said.read().decode(errors="replace")
        if done.returncode:
            last = (text.strip().splitlines() or ["it said nothing"])[-1]
            raise DatabaseError(f"{program} failed with status {done.returncode}: {last}")
        return text


def _as_service() -> list[str]:
    """The start of a command that runs as the server's user."""
    account = _account()
    if account is None:
        return []
    user, group = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}")
    return ["setpriv", user, group, "--clear-groups"]


def _account() -> pwd.struct_passwd | None:
    """Whom root runs the server as; None if this is not root. Raises: DatabaseError."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVICE_USER)
    except KeyError:
        raise DatabaseError(f"root can't run PostgreSQL, and has no user {_SERVICE_USER}") from None
