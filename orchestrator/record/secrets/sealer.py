"""Encrypts the values that are stored, with a key that is not in the database."""

import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from orchestrator.rules.access.admin_key import generated_key

KEY_FILE = "secrets.key"
_NONCE_BYTES = 12


class Sealer:
    """Seals values together with words about their use, which then can't be changed either."""

    def __init__(self, state_dir: Path) -> None:
        """The key is made at the first start. Raises: ConfigError."""
        key = hashlib.sha256(generated_key(state_dir / KEY_FILE).encode()).digest()
        self._cipher = AESGCM(key)

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
