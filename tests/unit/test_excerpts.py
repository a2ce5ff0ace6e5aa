"""Long values are recorded as their beginning, size and digest."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.link.frames import EVENT, parse_frame
from orchestrator.host.link.messages import parse_event
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.decide.excerpts import LONGEST_TEXT, LONGEST_WORDS, MOST_WORDS, excerpts, text
from sandbox_agent.decide.frames import FrameDecoder, encode
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.redaction import MARK, Redactor
from sandbox_agent.files.archives.tally import Tally
from sandbox_agent.run.session_secrets import SessionSecrets

SECRET = "hunter2-hunter2"
WORDS = st.lists(st.text(max_size=3000), max_size=100)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_is_short_stays_as_it_is() -> None:
    members = {
        "path": "é" * 512,
        "argv": ["a"] * MOST_WORDS,
        "bytes": 7,
        "none": None,
        "labels": {"a": "b"},
    }
    assert excerpts(members) == members


def test_a_long_text_is_its_beginning_size_and_digest() -> None:
    whole = "é" * 4000
    cut = excerpts({"path": whole})
    assert cut["path"].startswith("é" * 400)
    assert cut["path"].endswith(" more bytes]")
    assert len(cut["path"].encode()) <= LONGEST_TEXT
    assert (cut["path_bytes"], cut["path_sha256"]) == (8000, digest(whole.encode()))


def test_long_words_and_many_words_are_cut() -> None:
    words = ["x" * 60_000, *["y"] * 1000]
    cut = excerpts({"argv": words})
    assert 900 < len(cut["argv"][0]) <= LONGEST_TEXT
    assert len(cut["argv"]) == MOST_WORDS
    whole = "".join(f"{word}\0" for word in words).encode()
    assert (cut["argv_words"], cut["argv_bytes"]) == (1001, len(whole))
    assert cut["argv_sha256"] == digest(whole)


def test_a_large_object_is_the_beginning_of_its_text() -> None:
    labels = {f"k{number}": "v" * 500 for number in range(64)}
    cut = excerpts({"labels": labels})
    whole = json.dumps(labels, sort_keys=True, separators=(",", ":")).encode()
    assert cut["labels"].startswith('{"k0":"vvv')
    assert (cut["labels_bytes"], cut["labels_sha256"]) == (len(whole), digest(whole))


@given(WORDS)
def test_words_take_a_stated_size(words: list[str]) -> None:
    cut = excerpts({"argv": words})
    size = sum(len(word.encode("utf-8", "backslashreplace")) for word in cut["argv"])
    assert size <= LONGEST_WORDS
    assert len(cut["argv"]) <= MOST_WORDS
    assert ("argv_sha256" in cut) == (cut["argv"] != words)


@given(st.text())
def test_cutting_again_changes_nothing(value: str) -> None:
    cut = text(value * 500)
    assert text(cut) == cut


def test_an_agent_tells_the_names_of_the_protocol_whatever_is_secret() -> None:
    sent: list[Message] = []
    secrets = SessionSecrets()
    values = {"A": ["exit_code", ""], "B": ["argv_sha256", ""], "C": [SECRET, ""]}
    secrets.replace({"variables": values, "given": []})
    events = EventBuffer("0" * 16, sent.append, secrets.cut_reported)
    args = {"argv": ["exit_code", "z" * 2000], SECRET: SECRET}
    events.emit("command.exit", args=args, result={"exit_code": 0}, error="exit_code")
    told = sent[0]["params"]
    assert told["result"] == {"exit_code": 0}
    assert set(told["args"]) == {"argv", "argv_words", "argv_bytes", "argv_sha256", MARK}
    assert (told["args"]["argv"][0], told["args"][MARK], told["error"]) == (MARK, MARK, MARK)


def test_an_agent_tells_the_digest_of_what_has_no_secret() -> None:
    sent: list[Message] = []
    events = EventBuffer("0" * 16, sent.append, Redactor([SECRET]).value)
    words = ["tool", f"--key={SECRET}", "z" * 2000]
    members: dict[str, Any] = {"decision": None, "rule": None, "command_id": "c", "duration_ms": 0}
    events.emit("command.exec", args={"argv": words}, result=None, error="e" * 9000, **members)
    told = parse_event(sent[0]["params"])
    whole = f"tool\0--key={MARK}\0{'z' * 2000}\0".encode()
    assert told.args["argv"][:2] == ["tool", f"--key={MARK}"]
    assert (told.args["argv_bytes"], told.args["argv_sha256"]) == (len(whole), digest(whole))
    assert told.error is not None
    assert len(told.error) <= LONGEST_TEXT


@pytest.mark.parametrize("character", ["\x01", '"', "\n", "\udcff", "é", "a"])
def test_an_event_of_any_paths_fits_into_its_frame(character: str) -> None:
    tally = Tally(lambda path: path)
    for number in range(300):
        tally.add("file", f"{number}/" + character * 240, 1)
    of_a_helper = {"paths": [character * LONGEST_TEXT] * 32}
    for result in (tally.members(), of_a_helper):
        sent: list[Message] = []
        members: Message = {"decision": "allow", "rule": None, "command_id": None, "error": None}
        events = EventBuffer("0" * 16, sent.append)
        events.emit("file.pack", args={"path": "x"}, result=result, duration_ms=0, **members)
        decoder = FrameDecoder()
        decoder.add(encode(sent[0]))
        body = decoder.take()
        assert body is not None
        told = parse_event(parse_frame(body, EVENT)["params"]).result
        assert told is not None
        assert 0 < len(told["paths"]) <= 300
        # What the control plane records is what the agent told.
        assert excerpts(told) == told
