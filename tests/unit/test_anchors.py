"""Chain heads that are anchored outside the ledger: signed, chained, delivered once."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit import anchoring, query
from orchestrator.record.audit.anchoring import Anchoring, load_key
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.verification import verify
from orchestrator.record.audit.writer import chain_head
from orchestrator.settings.groups.places import AnchorSettings
from paddock.audit import anchors
from paddock.audit.anchors import AnchorError, ChainHead, judged
from paddock.audit.chain import Chain, Verdict, canonical
from tests.support.until import until
from tests.unit.ledger_support import fill

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ZEROS = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "anchors"


@pytest.fixture
def to_file(database: Database, file: Path) -> Anchoring:
    return Anchoring(AnchorSettings(file=file), database, KEY, "1a2b3c4d")


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_heads_are_told_once_and_signed(
    database: Database, ledger: Ledger, to_file: Anchoring, file: Path
) -> None:
    assert not await to_file.anchor()
    await fill(ledger, 3, "k1")
    await fill(ledger, 2, "k2")
    assert await to_file.anchor()
    assert not await to_file.anchor()
    await fill(ledger, 1, "k2")
    assert await to_file.anchor()
    found = anchors.read(lines(file), anchors.public_key(KEY))
    heads = [(head.session_key, head.seq) for head in found.heads]
    assert heads == [("k1", 3), ("k2", 2), ("k2", 3)]
    head = await database.read(lambda connection: chain_head(connection, "k2"))
    assert found.of_chain("k2")["k2"][3] == head.hash
    assert found.of_incarnation("s-k2", None) == found.of_chain("k2")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_chain_that_was_written_anew_or_cut_is_found(
    database: Database, ledger: Ledger, to_file: Anchoring, file: Path
) -> None:
    await fill(ledger, 4, "k1")
    await to_file.anchor()
    chains = anchors.read(lines(file)).of_chain("k1")
    exported = [line async for line in query.export(database, "k1")]

    def verdict(text: list[str]) -> Any:
        chain = Chain(wanted={4})
        for line in text:
            chain.follow(line)
        return judged(chain.verdict(), chain.seen, chains)

    assert verdict(exported).ok
    assert verdict(exported[:3]).reason == "the chain ends before the anchored seq 4"
    # An owner of the database can forge a chain that is intact in itself.
    await database.write(lambda connection: connection.execute("DELETE FROM events").rowcount)
    again = Ledger(database)
    await fill(again, 4, "k1")
    await again.close()
    assert (await verify(database, "k1")).ok
    forged = [line async for line in query.export(database, "k1")]
    assert verdict(forged).reason == "hash of seq 4 is not the one that was anchored"
    assert judged((await verify(database, "k1")), {}, {}).reason == (
        "nothing was anchored of this chain"
    )


def some_anchors(count: int = 3) -> list[str]:
    made: list[str] = []
    previous = ZEROS
    for number in range(1, count + 1):
        heads = [ChainHead("k1", "s", number, "a" * 64), ChainHead("system", None, 1, "b" * 64)]
        made.append(anchors.line(KEY, "1a2b3c4d", "2026-01-01T00:00:00Z", heads, previous))
        previous = anchors.digest(made[-1])
    return made


ANCHORS = some_anchors()


def test_incarnations_are_told_apart() -> None:
    a, b, c = "a" * 64, "b" * 64, "c" * 64
    found = anchors.Anchors(
        "00",
        [
            ChainHead("old", "s", 1, a),  # anchored by an earlier version
            ChainHead("k1", "s", 1, a),  # likewise, although k1 has an incarnation below
            ChainHead("k1", "s", 2, b, 1),
            ChainHead("k2", "s", 1, c, 2),
            ChainHead("other", "t", 1, c, 1),
            ChainHead("system", None, 1, c),
        ],
    )
    assert found.sessions() == {"s": {1, 2}, "t": {1}}
    assert found.of_incarnation("s", 1) == {"k1": {1: a, 2: b}}
    assert found.of_incarnation("s", 2) == {"k2": {1: c}}
    assert found.of_incarnation("s", None) == {"old": {1: a}}
    assert found.of_incarnation("none", 1) == found.of_chain("none") == {}

    def reason(seen: dict[int, str], incarnation: int, legacy: bool = True) -> str | None:
        verdict = Verdict(True, None, None, max(seen), seen[max(seen)])
        others = found.of_incarnation("s", None) if legacy else None
        return judged(verdict, seen, found.of_incarnation("s", incarnation), others).reason

    assert reason({1: a, 2: b, 3: c}, 1) is None
    assert reason({1: c}, 2) is None
    # One incarnation is never taken for another, whatever else was anchored.
    assert reason({1: c}, 1) == "hash of seq 1 is not the one that was anchored"
    assert reason({1: a, 2: b}, 2) == "hash of seq 1 is not the one that was anchored"
    # An incarnation without heads of its own must match a head of an earlier version.
    assert reason({1: a}, 3) is None
    assert reason({1: b}, 3) == "hash of seq 1 is not the one that was anchored"
    assert reason({1: a}, 3, legacy=False) == "nothing was anchored of this chain"


def test_a_number_that_was_given_twice_is_found() -> None:
    """The second row of an incarnation, under another key, lacks the first one's events."""
    first, second = ChainHead("k1", "s", 1, "a" * 64, 1), ChainHead("k2", "s", 1, "b" * 64, 1)
    chains = anchors.Anchors("00", [first, second]).of_incarnation("s", 1)
    for head in (first, second):
        whole = Verdict(True, None, None, 1, head.hash)
        assert not judged(whole, {1: head.hash}, chains).ok


@pytest.mark.parametrize("incarnation", ["1", 1.5, True, []])
def test_an_incarnation_that_is_no_number(incarnation: Any) -> None:
    head = ChainHead("k1", "s", 1, "a" * 64, incarnation)
    with pytest.raises(AnchorError, match="malformed head"):
        anchors.read([anchors.line(KEY, "1a2b3c4d", "t", [head], ZEROS)])


def test_lines_of_earlier_versions_are_read() -> None:
    head = {"session_key": "k1", "session_id": "s", "seq": 1, "hash": "a" * 64}
    body = {"format": anchors.FORMAT, "instance": "i", "time": "t", "heads": [head]}
    body |= {"previous": ZEROS, "key": anchors.public_key(KEY)}
    body["signature"] = KEY.sign(canonical(body).encode()).hex()
    assert anchors.read([canonical(body)]).sessions() == {"s": set()}


@settings(max_examples=60)
@given(st.integers(0, 2), st.data())
def test_any_change_of_a_line_is_found(number: int, data: st.DataObject) -> None:
    text = ANCHORS[number]
    position = data.draw(st.integers(0, len(text) - 1))
    replacement = data.draw(
        st.characters(max_codepoint=0x17F).filter(lambda c: c != text[position])
    )
    changed = text[:position] + replacement + text[position + 1 :]
    with pytest.raises(AnchorError):
        anchors.read([*ANCHORS[:number], changed, *ANCHORS[number + 1 :]])


@pytest.mark.parametrize(
    "text",
    [
        ANCHORS[1:],
        [ANCHORS[0], ANCHORS[2]],
        [ANCHORS[1], ANCHORS[0], ANCHORS[2]],
        [*ANCHORS, ANCHORS[2]],
        [],
        ["{}"],
        ["[]"],
        ["\0"],
        ["[" * 100_000],
    ],
)
def test_anchors_that_are_not_all_there(text: list[str]) -> None:
    with pytest.raises(AnchorError):
        anchors.read(text)


def test_anchors_of_another_key() -> None:
    forged = anchors.line(OTHER, "1a2b3c4d", "t", [ChainHead("k1", "s", 1, "c" * 64)], ZEROS)
    assert anchors.read([forged]).public_key == anchors.public_key(OTHER)
    with pytest.raises(AnchorError, match="line 1: is signed by another key"):
        anchors.read([forged], anchors.public_key(KEY))
    claimed = json.loads(forged) | {"key": anchors.public_key(KEY)}
    with pytest.raises(AnchorError, match="not of its content"):
        anchors.read([canonical(claimed)])
    for bad in ("zz", "00", "", "A" * 128):
        with pytest.raises(AnchorError):
            anchors.read([canonical(claimed | {"signature": bad})])


async def test_what_a_kill_left_is_delivered_once(
    ledger: Ledger, to_file: Anchoring, file: Path
) -> None:
    await fill(ledger, 2, "k1")
    pending = await to_file._make()
    assert pending is not None
    await fill(ledger, 1, "k2")
    for begun in ("", pending[:40], pending, pending + "\n"):
        file.write_text(begun)
        anchoring._append(file, pending)
        assert file.read_text() == pending + "\n"
    while await to_file.anchor():
        pass
    assert len(lines(file)) == 2
    assert {head.session_key for head in anchors.read(lines(file)).heads} == {"k1", "k2"}


async def test_many_chains_make_many_lines(
    ledger: Ledger, to_file: Anchoring, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "MOST_HEADS", 3)
    monkeypatch.setattr(anchoring, "_PORTION", 4)
    for number in range(8):
        await fill(ledger, 1 + number % 2, f"k{number}")
    while await to_file.anchor():
        pass
    found = anchors.read(lines(file))
    assert {(head.session_key, head.seq) for head in found.heads} >= {
        (f"k{number}", 1 + number % 2) for number in range(8)
    }
    assert all(len(json.loads(line)["heads"]) <= 3 for line in lines(file))


async def test_a_url_that_refuses_gets_the_same_line_again(
    database: Database, ledger: Ledger
) -> None:
    bodies: list[str] = []
    statuses = [500, 200]

    async def take(request: web.Request) -> web.Response:
        bodies.append(await request.text())
        return web.Response(status=statuses.pop(0))

    app = web.Application()
    app.router.add_post("/anchors", take)
    async with TestServer(app) as server:
        told = AnchorSettings(url=str(server.make_url("/anchors")))
        posting = Anchoring(told, database, KEY, "1a2b3c4d")
        await fill(ledger, 1)
        with pytest.raises(ValueError, match="status 500"):
            await posting.anchor()
        await fill(ledger, 1)
        assert await posting.anchor()
    assert bodies[0] == bodies[1]
    assert anchors.read([bodies[0]]).heads[0].seq == 1


async def test_it_works_in_the_background(
    database: Database, ledger: Ledger, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(ledger, 1)
    file.mkdir()
    failing = Anchoring(AnchorSettings(file=file), database, KEY, "1a2b3c4d")
    failing.start(Tasks())
    await until(lambda: "heads could not be anchored" in caplog.text)
    await failing.close()
    file.rmdir()
    working = Anchoring(AnchorSettings(file=file), database, KEY, "1a2b3c4d")
    working.start(Tasks())
    await until(lambda: file.exists() and len(file.read_bytes()) > 0)
    await working.close()
    assert anchors.read(lines(file)).of_chain("k1")


def test_a_key_is_made_once(tmp_path: Path) -> None:
    told = AnchorSettings(file=tmp_path / "anchors")
    key = load_key(told, tmp_path)
    assert (tmp_path / "anchor.key").stat().st_mode & 0o777 == 0o600
    assert anchors.public_key(load_key(told, tmp_path)) == anchors.public_key(key)
    assert (tmp_path / "anchor.pub").read_text().strip() == anchors.public_key(key)


@pytest.mark.parametrize("text", [None, "", "no key", "-----BEGIN PRIVATE KEY-----\n"])
def test_keys_that_can_not_be(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "mine.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.pem"):
        load_key(AnchorSettings(file=tmp_path / "anchors", key_file=path), tmp_path)


@pytest.mark.parametrize(
    "members", [{}, {"url": "ftp://x"}, {"file": "a", "interval": 0}, {"file": "a", "more": 1}]
)
def test_settings_that_can_not_be(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        AnchorSettings(**members)
