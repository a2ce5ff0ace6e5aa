"""What makes machines a cluster: tables and an admin key, certificates, and settings."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

from gateway.privileges import UID
from scripts.cluster.database import Database
from scripts.cluster.gateways import give_password
from scripts.cluster.layout import (
    MOST_NODES,
    NODE_TLS_PORT,
    PREVIEWS_FURTHER,
    ClusterError,
    Layout,
    Record,
)
from scripts.cluster.nodes import without_settings

# Its name, and that of its database.
CLUSTER = "local"
# The certificate that all nodes of a Swarm have.
SHARED = "nodes"
_SECONDS = 300


def prepare(layout: Layout, record: Record, database: Database) -> None:
    """Makes the database's tables, the admin key and certificates, where they are missing.

    Raises: ClusterError, DatabaseError.
    """
    if CLUSTER not in database.sql("SELECT datname FROM pg_database").splitlines():
        database.sql(f"CREATE DATABASE {CLUSTER}")
    given = access(database, database.password_file)
    made = _paddock(given, "init")
    if not layout.admin_key.exists():
        if made["admin_key"] is None:
            # Whoever was told it has been killed: only its hash is left.
            database.sql("DELETE FROM keys", CLUSTER)
            made = _paddock(given, "init")
        _write_key(layout.admin_key, made["admin_key"])
    if not layout.secrets_key.exists():
        _write_key(layout.secrets_key, secrets.token_hex(32))
    give_password(layout, database.password_file, UID)
    certified = ("certificates", "--directory", str(layout.certificates), "--replace")
    for name in record.names:
        if not (layout.certificates / f"{name}.pem").exists():
            _paddock(given, *certified, "--node", name, "--host", record.address(name))
    if not (layout.certificates / "gateway.pem").exists():
        _paddock(given, *certified, "--gateway")


def shared_certificate(layout: Layout, database: Database) -> str:
    """The name of a certificate that is every node's: a Swarm gives all of them the same secrets.

    Raises: ClusterError.
    """
    if not (layout.certificates / f"{SHARED}.pem").exists():
        names = [f"--host=node{number}" for number in range(1, MOST_NODES + 1)]
        issue = ("certificates", "--directory", str(layout.certificates), "--node", SHARED)
        _paddock(access(database, database.password_file), *issue, *names)
    return SHARED


def node_settings(layout: Layout, record: Record, database: Database, name: str) -> dict[str, str]:
    """What a control plane needs to be a node of the cluster."""
    address = record.address(name)
    return {
        **access(database, database.password_file),
        "PADDOCK_CLUSTER_SECRETS_KEY_FILE": str(layout.secrets_key),
        "PADDOCK_NODE": name,
        # Gateways pass on what clients have called them.
        "PADDOCK_ALLOWED_HOSTS": "127.0.0.1,localhost",
        "PADDOCK_COMPAT": "e2b,openhands,swerex",
        # Links to ports of sessions lead to the first gateway.
        **_shown_at(min(record.ports.values(), default=None)),
        "PADDOCK_NODE_LISTEN": f"{address}:{NODE_TLS_PORT}",
        "PADDOCK_NODE_URL": f"https://{address}:{NODE_TLS_PORT}",
        **_certified(layout, "NODE", name),
    }


def gateway_settings(layout: Layout, database: Database) -> dict[str, str]:
    """What a gateway needs, but for its port."""
    return {
        **access(database, layout.gateway_password),
        "PADDOCK_GATEWAY_PREVIEW_DOMAIN": "localhost",
        **_certified(layout, "GATEWAY", "gateway"),
    }


def _shown_at(port: int | None) -> dict[str, str]:
    if port is None:
        return {}
    return {"PADDOCK_PREVIEW_URL": f"http://127.0.0.1:{port + PREVIEWS_FURTHER}"}


def access(database: Database, password_file: Path) -> dict[str, str]:
    """Where the cluster's database is, for nodes and gateways."""
    return {
        "PADDOCK_CLUSTER": CLUSTER,
        "PADDOCK_CLUSTER_DATABASE": database.url(CLUSTER, password=False),
        "PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE": str(password_file),
    }


def _certified(layout: Layout, kind: str, name: str) -> dict[str, str]:
    folder = layout.certificates
    return {
        f"PADDOCK_{kind}_CERT": str(folder / f"{name}.pem"),
        f"PADDOCK_{kind}_KEY": str(folder / f"{name}.key"),
        f"PADDOCK_{kind}_CA": str(folder / "ca.pem"),
    }


def _paddock(access: dict[str, str], *arguments: str) -> dict[str, str | None]:
    """The JSON of one of the commands `paddock cluster`. Raises: ClusterError."""
    command = [sys.executable, "-m", "paddock", "cluster", *arguments, "--json"]
    done = subprocess.run(
        command,
        env=without_settings() | access,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise ClusterError(f"`paddock cluster {' '.join(arguments)}`: {said}")
    result: dict[str, str | None] = json.loads(done.stdout)
    return result


def _write_key(path: Path, key: str | None) -> None:
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{key}\n")
    new.replace(path)
