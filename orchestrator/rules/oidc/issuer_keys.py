"""What an issuer publishes: where to sign in, and the keys of its signatures, kept for a while."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from joserfc.errors import JoseError
from joserfc.jwk import import_key

from orchestrator.rules.oidc.issuer_fetch import IssuerError, IssuerHttp
from orchestrator.rules.oidc.issuer_terms import IssuerTerms, check_issuer_url
from orchestrator.rules.oidc.token_claims import PublicKey, TokenHeader

# Keys are read again when they are so old, and are not believed when they are older than the other:
# an issuer that does not answer can't withdraw one.
FRESH_SECONDS = 600.0
VALID_SECONDS = 3600.0
# Tokens with unknown keys make us ask again, but nobody makes us ask more often than this.
PAUSE_SECONDS = 30.0
_MOST_KEYS = 64
_WELL_KNOWN = "/.well-known/openid-configuration"
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

log = logging.getLogger(__name__)


class Published(NamedTuple):
    """The addresses of an issuer; None: it has none."""

    authorization: str | None
    token: str | None
    device: str | None
    jwks: str
    end_session: str | None


class IssuerKeys:
    """The keys and addresses of one issuer. One request is under way at a time."""

    def __init__(
        self, terms: IssuerTerms, http: IssuerHttp, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.terms = terms
        self._http = http
        self._clock = clock
        self._published: Published | None = None
        self._keys: list[dict[str, Any]] = []
        self._imported: dict[int, PublicKey] = {}
        self._read_at = self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        # Why the last request has failed, for the operator.
        self.problem: str | None = None

    async def published(self) -> Published:
        """Where to sign in. Raises: IssuerError."""
        if self._published is None or self._age > FRESH_SECONDS:
            await self._refresh()
        if self._published is None:
            raise IssuerError(self.problem or "the issuer has not been asked yet")
        return self._published

    async def key_for(self, header: TokenHeader) -> PublicKey | None:
        """The key of a token's signature; None if the issuer has none that fits.

        Raises: IssuerError if that can't be known.
        """
        if self._age > FRESH_SECONDS:
            await self._refresh()
        key = self._find(header)
        if key is None and self._age > 0:
            await self._refresh()
            key = self._find(header)
        if self._age > VALID_SECONDS:
            raise IssuerError(self.problem or "the issuer's keys are not known")
        return key

    @property
    def _age(self) -> float:
        return self._clock() - self._read_at

    async def _refresh(self) -> None:
        """Asks the issuer, unless it was asked a moment ago; notes why that fails."""
        asked = self._asked_at
        async with self._asking:
            now = self._clock()
            if self._asked_at > asked or now - self._asked_at < PAUSE_SECONDS:
                return
            self._asked_at = now
            try:
                await self._read()
            except IssuerError as error:
                self.problem = str(error)
                log.error("the issuer %s can't be used: %s", self.terms.name, error)

    async def _read(self) -> None:
        found = await self._http.get(self.terms.issuer.rstrip("/") + _WELL_KNOWN)
        if found.get("issuer") != self.terms.issuer:
            raise IssuerError("what it publishes is of another issuer: compare `issuer` exactly")
        published = Published(
            _address(found, "authorization_endpoint"),
            _address(found, "token_endpoint"),
            _address(found, "device_authorization_endpoint"),
            _address(found, "jwks_uri") or "",
            _address(found, "end_session_endpoint"),
        )
        answer = await self._http.get(published.jwks)
        keys = answer.get("keys")
        if not isinstance(keys, list) or len(keys) > _MOST_KEYS:
            raise IssuerError(f"{published.jwks} has no list of at most {_MOST_KEYS} keys")
        self._published = published
        self._keys = [each for each in keys if isinstance(each, dict)]
        self._imported.clear()
        self._read_at = self._clock()
        self.problem = None

    def _find(self, header: TokenHeader) -> PublicKey | None:
        """The only key that fits: a token without `kid` can't choose among several."""
        fitting = [number for number, key in enumerate(self._keys) if _fits(key, header)]
        if len(fitting) != 1:
            return None
        number = fitting[0]
        if number not in self._imported:
            # Only the public part, whatever is published.
            public: dict[str, str | list[str]] = {
                name: value
                for name, value in self._keys[number].items()
                if name in ("kty", "n", "e", "crv", "x", "y") and isinstance(value, str)
            }
            try:
                key = import_key(public)
            except (JoseError, ValueError, TypeError, KeyError):
                return None
            if not isinstance(key, PublicKey):
                return None
            self._imported[number] = key
        return self._imported[number]


def _fits(key: dict[str, Any], header: TokenHeader) -> bool:
    return (
        key.get("kty") == _KINDS[header.algorithm[:2]]
        and key.get("use", "sig") == "sig"
        and key.get("alg", header.algorithm) == header.algorithm
        and (header.kid is None or key.get("kid") == header.kid)
    )


def _address(found: dict[str, Any], name: str) -> str | None:
    """Raises: IssuerError if it is there, and is none that we would ask."""
    url = found.get(name)
    if url is None and name != "jwks_uri":
        return None
    try:
        return check_issuer_url(url) if isinstance(url, str) and len(url) <= 2048 else _no_url()
    except ValueError as error:
        raise IssuerError(f"{name} {error}") from None


def _no_url() -> str:
    raise ValueError("is no address")
