"""What an installed server adds to the command line."""

from pathlib import Path
from typing import TYPE_CHECKING

from api.cli import machine, tools
from paddock.cli.exits import Failure, Status
from paddock.cli.server import Server
from paddock.connect.errors import NoAddressError

if TYPE_CHECKING:
    from orchestrator.settings.settings import Settings


def _settings() -> "Settings":
    from orchestrator.ground.config_error import ConfigError
    from orchestrator.settings.settings import load_settings

    try:
        return load_settings()
    except ConfigError as error:
        raise NoAddressError(str(error)) from None


def _find_url() -> str:
    from orchestrator.settings import instance_url

    return instance_url.find_url(_settings())


def _check_announced() -> None:
    """The key of a state directory is for its control plane, not for whoever else listens."""
    from orchestrator.settings import instance_url

    settings = _settings()
    if instance_url.announced_url(settings) is None:
        raise NoAddressError(
            f"no control plane of the state directory {settings.state_dir} listens",
            "`paddock serve` starts one; --url or PADDOCK_URL names another",
            listens=False,
        )


def _find_key() -> str | Path:
    """The key in PADDOCK_ADMIN_KEY, or the state directory's key file."""
    from orchestrator.rules.access.admin_key import ADMIN_KEY_FILE

    settings = _settings()
    if settings.admin_key is not None:
        return settings.admin_key.get_secret_value()
    return settings.state_dir / ADMIN_KEY_FILE


def _explain(error: BaseException) -> Failure | None:
    """What the person at the terminal sees of one of the server's exceptions; None: of no other."""
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


SERVER = Server(
    machine=machine.app,
    tools=tools.app,
    explain=_explain,
    find_url=_find_url,
    find_key=_find_key,
    check_announced=_check_announced,
    tool_names=tools.oneshot_names,
)
