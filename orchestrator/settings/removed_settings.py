"""Settings that no longer exist: a start with one fails, and the error says what replaces it."""

from collections.abc import Iterable

from orchestrator.ground.config_error import ConfigError

_WEBHOOK = """{} is no setting any more. A hook replaces it, in the file of PADDOCK_CONFIG_FILE:
[hooks.approvals]
url = "https://host/path"
secret = "the-secret-that-signs-the-messages"
events = ["approval.requested"]"""
_REMOVED = {"approval_webhook_url": _WEBHOOK, "approval_webhook_secret": _WEBHOOK}


def check_removed(names: Iterable[str], prefix: str = "") -> None:
    """Checks the names of settings that are set, or of variables, which have the prefix.

    Raises: ConfigError that shows what replaces a removed setting, but not its value, which may be
    a secret.
    """
    for name in names:
        if text := _REMOVED.get(name.upper().removeprefix(prefix).lower()):
            raise ConfigError(text.format(name))
