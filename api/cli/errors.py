"""Translates the server's exceptions for the person at the terminal."""

from paddock.cli.exits import Failure, Status


def explain(error: BaseException) -> Failure | None:
    """The failure for one of the server's exceptions; None for any other exception."""
    from orchestrator.ground.config_error import ConfigError
    from orchestrator.ground.errors import PaddockError
    from orchestrator.ground.store.database_file import StoreError
    from orchestrator.operate.backups.backup_file import BackupError
    from paddock.cli.errors import REMEDIES

    if isinstance(error, ConfigError):
        return Failure(str(error), status=Status.USAGE)
    if isinstance(error, PaddockError):
        # The base class has no remedy of its own.
        known = type(error) is not PaddockError
        return Failure(error.detail, REMEDIES.get(error.code) if known else None)
    if isinstance(error, StoreError | BackupError):
        return Failure(str(error))
    return None
