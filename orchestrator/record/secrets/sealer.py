"""Encrypts the values that are stored, with a key that is not in the database."""

import hashlib
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.access.admin_key import generated_key

KEY_FILE = "secrets.key"
_NONCE_BYTES = 12
# As much as a key of AES has: 64 digits of `openssl rand -hex 32`, or 32 characters at least.
_LEAST_CHARACTERS = 32
_MOST_BYTES = 4096


class Sealer:
    """Seals values together with words about their use, which then can't be changed either."""

    def __init__(self, key: bytes) -> None:
        """`key` has 32 bytes."""
        self._cipher = AESGCM(key)
        # Tells whether two have one key, and nothing of it.
        self.check = hmac.new(key, b"which key this is", hashlib.sha256).hexdigest()

    def seal(self, value: SecretStr, bound: bytes) -> bytes:
        """The encrypted value, which opens with the same words only."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value.get_secret_value().encode(), bound)

    def open(self, sealed: bytes, bound: bytes) -> SecretStr | None:
        """The value; None if another key sealed it, or if it was sealed for other words."""
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return SecretStr(self._cipher.decrypt(nonce, rest, bound).decode())
        except (InvalidTag, ValueError):
            return None


def own_sealer(state_dir: Path) -> Sealer:
    """This machine's. The key is made at the first start. Raises: ConfigError."""
    return Sealer(hashlib.sha256(generated_key(state_dir / KEY_FILE).encode()).digest())


def shared_sealer(file: Path, cluster: str) -> Sealer:
    """That of all nodes of a cluster, with the key in the file. Raises: ConfigError."""
    name = "PADDOCK_CLUSTER_SECRETS_KEY_FILE"
    try:
        with file.open("rb") as opened:
            key = opened.read(_MOST_BYTES + 1).strip()
    except OSError as error:
        raise ConfigError(f"{name}: {file}: {error.strerror}") from None
    if not _LEAST_CHARACTERS <= len(key) <= _MOST_BYTES:
        raise ConfigError(
            f"{name}: {file} must have at least {_LEAST_CHARACTERS} random characters, such as "
            "those of `openssl rand -hex 32`"
        )
    return Sealer(hashlib.sha256(f"secrets of {cluster}\n".encode() + key).digest())
