"""Signed chain heads, kept out of reach of anyone who rewrites the ledger. No I/O.

An anchor is one line of canonical JSON: the chains with their last events at that time, the SHA-256
of the previous line (64 zeros for the first), and an Ed25519 signature of all of it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from paddock.audit.chain import GENESIS_HASH, Verdict, canonical

FORMAT = "paddock-anchor-1"
# Chain heads per line; more chains take more lines.
MOST_HEADS = 1000
_LONGEST_LINE = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")


class AnchorError(Exception):
    """Anchors that were not made by that key, or that are incomplete; the message says where."""


class ChainHead(NamedTuple):
    """The last event of a chain at the time of the anchor."""

    session_key: str
    session_id: str | None
    seq: int
    hash: str
    # The incarnation of the session, from 1; anchors of earlier versions lack it.
    incarnation: int | None = None


# Anchored hashes by seq, for each chain by its key.
Chains = dict[str, dict[int, str]]


class Anchors:
    """The content of an anchor file. `public_key` (hex) signed all of it."""

    def __init__(self, public_key: str, heads: Iterable[ChainHead]) -> None:
        self.public_key = public_key
        self.heads = tuple(heads)
        self._chains: Chains = {}
        # The chains of each session id, and their incarnations. If only a later anchor of a chain
        # states the incarnation, it applies to the earlier ones as well.
        self._keys: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        for head in self.heads:
            self._chains.setdefault(head.session_key, {})[head.seq] = head.hash
            if head.session_id is not None:
                self._keys.setdefault(head.session_id, set()).add(head.session_key)
            if head.incarnation is not None:
                self._numbers[head.session_key] = head.incarnation

    def sessions(self) -> dict[str, set[int]]:
        """The ids of anchored sessions, with their incarnations."""
        numbers = self._numbers
        return {
            session_id: {numbers[key] for key in keys if key in numbers}
            for session_id, keys in self._keys.items()
        }

    def of_incarnation(self, session_id: str, incarnation: int | None) -> Chains:
        """The anchors of that session; more than one chain means a forgery.

        With None, these are the anchors of earlier versions, which do not state the incarnation.
        """
        keys = self._keys.get(session_id, ())
        return {k: self._chains[k] for k in keys if self._numbers.get(k) == incarnation}

    def of_chain(self, session_key: str) -> Chains:
        """The anchors of the chain with that key."""
        found = self._chains.get(session_key)
        return {} if found is None else {session_key: found}


def public_key(key: Ed25519PrivateKey) -> str:
    """The public key in hex."""
    return key.public_key().public_bytes_raw().hex()


def line(
    key: Ed25519PrivateKey, instance: str, time: str, heads: Iterable[ChainHead], previous: str
) -> str:
    """One anchor without a line break; `previous` is the digest of the previous one."""
    body: dict[str, Any] = {
        "format": FORMAT,
        "instance": instance,
        "time": time,
        "heads": [head._asdict() for head in heads],
        "previous": previous,
        "key": public_key(key),
    }
    body["signature"] = key.sign(canonical(body).encode()).hex()
    return canonical(body)


def digest(anchor: str) -> str:
    """The value of `previous` in the next anchor."""
    return hashlib.sha256(anchor.encode()).hexdigest()


def read(lines: Iterable[str], expected_key: str | None = None) -> Anchors:
    """Verifies all anchors of a file, first to last.

    Without an expected public key, they must only have the same key. Raises: AnchorError.
    """
    previous, heads = GENESIS_HASH, list[ChainHead]()
    key = expected_key
    for number, text in enumerate(lines, 1):
        text = text.removesuffix("\n")
        try:
            body = _body(text)
            if body["previous"] != previous:
                raise ValueError("the line before is missing, or was changed")
            key = key or str(body["key"])
            _check_signature(body, key)
            heads += (_head(head) for head in body["heads"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AnchorError(f"line {number}: {error}") from None
        previous = digest(text)
    if key is None or not heads:
        raise AnchorError("there are no anchors")
    return Anchors(key, heads)


def judged(
    verdict: Verdict, seen: Mapping[int, str], chains: Chains, any_of: Chains | None = None
) -> Verdict:
    """The verdict on a chain that must contain all anchored events of `anchored`.

    If there are none, it must contain all of one of `any_of`. `seen` has its hashes, by seq.
    """
    if not verdict.ok:
        return verdict
    problems = [_problem(anchored, seen, verdict.seq) for anchored in chains.values()]
    others = [_problem(anchored, seen, verdict.seq) for anchored in (any_of or {}).values()]
    if problems:
        reason = next((problem for problem in problems if problem is not None), None)
    elif others:
        reason = None if None in others else others[-1]
    else:
        reason = "nothing was anchored of this chain"
    if reason is None:
        return verdict
    return Verdict(False, verdict.seq, reason, verdict.seq, verdict.hash)


def _problem(anchored: Mapping[int, str], seen: Mapping[int, str], last_seq: int) -> str | None:
    for seq, event_hash in sorted(anchored.items()):
        if seq > last_seq:
            return f"the chain ends before the anchored seq {seq}"
        if seen.get(seq) != event_hash:
            return f"hash of seq {seq} is not the one that was anchored"
    return None


def _body(text: str) -> dict[str, Any]:
    if len(text) > _LONGEST_LINE:
        raise ValueError("is too long")
    body = json.loads(text)
    if not isinstance(body, dict) or body.get("format") != FORMAT or canonical(body) != text:
        raise ValueError("is no anchor")
    return body


def _check_signature(body: dict[str, Any], expected_key: str) -> None:
    if body["key"] != expected_key:
        raise ValueError("is signed by another key")
    if not _SIGNATURE.fullmatch(body["signature"]):
        raise ValueError("has a malformed signature")
    signed = {name: value for name, value in body.items() if name != "signature"}
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(expected_key))
    try:
        key.verify(bytes.fromhex(body["signature"]), canonical(signed).encode())
    except InvalidSignature:
        raise ValueError("has a signature that is not of its content") from None


def _head(value: Any) -> ChainHead:
    head = ChainHead(**value)
    named = isinstance(head.session_key, str) and isinstance(head.session_id, str | None)
    numbered = head.incarnation is None or type(head.incarnation) is int
    whole = type(head.seq) is int and numbered and _SHA256.fullmatch(head.hash)
    if not named or not whole:
        raise ValueError("has a malformed head")
    return head
