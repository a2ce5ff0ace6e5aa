"""Makes the exports of the configuration."""

import socket
import ssl
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.store.database import Database
from orchestrator.operate.exports.destination import Destination
from orchestrator.operate.exports.export import Export, ExportPlan
from orchestrator.operate.exports.exports import Exports
from orchestrator.operate.exports.file_destination import FileDestination
from orchestrator.operate.exports.http_destination import HttpDestination, HttpForm
from orchestrator.operate.exports.ocsf import OcsfSource
from orchestrator.operate.exports.syslog_destination import SyslogDestination
from orchestrator.record.audit.ledger import Ledger
from orchestrator.settings.operator_exports import OperatorExport, load_tls, load_token
from orchestrator.settings.values import split_address


def made_exports(
    configured: Mapping[str, OperatorExport], database: Database, ledger: Ledger, uid: str
) -> Exports:
    """The exports, not yet begun. `uid` is this control plane's own id.

    Their files are read once, so that a mistake in one is told at the start. Raises: ConfigError.
    """
    source = OcsfSource(uid, _version())
    each = [
        Export(
            ExportPlan(name, export.format, export.since == "now"),
            _destination(name, export),
            database,
            ledger,
            source,
        )
        for name, export in configured.items()
    ]
    return Exports(each)


def _destination(name: str, export: OperatorExport) -> Destination:
    if export.file is not None:
        if not export.file.parent.is_dir():
            raise ConfigError(f"exports: {name}: {export.file.parent}: is not a directory")
        return FileDestination(export.file)
    load_tls(name, export)
    if export.syslog is not None:
        host, port = split_address(export.syslog)
        address = host.strip("[]"), port
        return SyslogDestination(address, partial(_tls, name, export), socket.gethostname())
    load_token(name, export)
    return HttpDestination(
        export.url or "",
        HttpForm(export.body, export.gzip),
        partial(load_token, name, export),
        partial(_optional_tls, name, export),
    )


def _tls(name: str, export: OperatorExport) -> ssl.SSLContext:
    try:
        return load_tls(name, export)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _optional_tls(name: str, export: OperatorExport) -> ssl.SSLContext | None:
    """None: this host's authorities count, and no certificate of ours is shown."""
    own = export.ca_file is not None or export.cert_file is not None
    return load_tls(name, export) if own else None


def _version() -> str:
    try:
        return version("paddock")
    except PackageNotFoundError:  # run from its sources
        return "unknown"
