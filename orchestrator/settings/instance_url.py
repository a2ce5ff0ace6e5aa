"""The URL of this machine's control plane, kept in the state directory while it listens.

Commands and scripts that know a state directory find the URL and the key of its instance there.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.settings import Settings

URL_FILE = "url"
_MAX_URL_BYTES = 1024
# A client on this machine can't connect to "all interfaces".
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def reachable(host: str, port: int) -> tuple[str, int]:
    """The address at which a client on this machine reaches a listener."""
    return _LOOPBACK.get(host, host), port


def url_of(host: str, port: int) -> str:
    """A listener's URL for clients on this machine."""
    host, port = reachable(host, port)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def announce(state_dir: Path, url: str) -> None:
    """Writes the URL atomically. Raises: ConfigError."""
    draft = state_dir / f".{URL_FILE}.{secrets.token_hex(8)}"
    try:
        draft.write_text(f"{url}\n", encoding="ascii")
        os.replace(draft, state_dir / URL_FILE)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise ConfigError(f"{state_dir / URL_FILE}: {error.strerror}") from None


def withdraw(state_dir: Path) -> None:
    """Removes the URL, because nothing listens any more."""
    with suppress(OSError):
        (state_dir / URL_FILE).unlink(missing_ok=True)


def announced_url(settings: Settings) -> str | None:
    """The URL at which the state directory's control plane says that it listens."""
    try:
        with (settings.state_dir / URL_FILE).open("rb") as file:
            url = file.read(_MAX_URL_BYTES).decode("ascii", "replace").strip()
    except OSError:  # it does not run, or belongs to another user
        return None
    return url if urlsplit(url).scheme in ("http", "https") else None


def find_url(settings: Settings) -> str:
    """The URL at which the state directory's control plane listens, or would by its settings."""
    return announced_url(settings) or url_of(*settings.address)
