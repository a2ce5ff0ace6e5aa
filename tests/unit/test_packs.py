"""Context packs: what is a pack, its hash, and what it permits."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError as ModelError

from api.shape.objects import validated
from api.views.packs import pack_of
from orchestrator.ground.errors import ValidationError
from orchestrator.rules.policy.levels import load_levels
from orchestrator.sandbox.packs import decisions
from orchestrator.sandbox.packs.decisions import Denial
from orchestrator.sandbox.sandboxes.configuration import consume_of
from orchestrator.state.pack import Pack, PackFile
from paddock.client.packs import content_hash, pack
from paddock.contract import pack_form
from paddock.contract.pack_form import ToolClass, absolute, normalised
from paddock.contract.packs import ContextPack
from sandbox_agent.decide.command_words import DeniedError

HASH = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
BODY: dict[str, Any] = {
    "manifest_id": "fix",
    "profile_id": "reviewer",
    "entries": [
        {"path": "src/b.py", "content_hash": HASH, "stable_id": "b"},
        {"path": "/workspace/src/a.py", "content_hash": HASH, "access_level": "ReadWithZoom"},
        {"path": "notes", "stable_id": "n"},
    ],
    "tool_allowlist": ["read", "Execute", "LS", "write"],
    "write_allowlist": ["/workspace/./out/", "/workspace//log"],
    "shell_allowlist": ["grep *", "ls"],
}


def parsed(**members: Any) -> ContextPack:
    return validated(ContextPack, {**BODY, **members})


def made(**members: Any) -> Pack:
    return pack_of(parsed(**members))


# Paths


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("a", "/workspace/a"),
        ("./a//b/../c/", "/workspace/a/c"),
        ("/workspace//a", "/workspace/a"),
        ("../workspace/a", "/workspace/a"),
        ("Café", "/workspace/Café"),
        ("/etc/hosts", "/etc/hosts"),
        ("..", "/"),
    ],
)
def test_a_path_has_one_form(path: str, form: str) -> None:
    assert absolute(path) == form


@pytest.mark.parametrize("path", ["", "a\0b", "../../x", "/..", "a" * 4097, "/a" * 257])
def test_a_malformed_path_has_none(path: str) -> None:
    with pytest.raises(ValueError, match="must"):
        absolute(path)


@given(st.text(alphabet="/.aé", min_size=1, max_size=20))
def test_a_form_stays_as_it_is(path: str) -> None:
    try:
        form = absolute(path)
    except ValueError:
        return
    assert absolute(form) == form
    assert "//" not in form
    assert not {".", ".."} & set(form.split("/"))


def test_letters_and_their_encoding_are_kept() -> None:
    assert normalised("A") != normalised("a")
    assert normalised("caf\u00e9") != normalised("cafe\u0301")


def test_a_long_path_is_cut_as_text() -> None:
    cut = decisions.truncated("é" * 3000)
    assert len(cut.encode()) <= 4096
    assert cut.endswith("é...[TRUNCATED]")
    assert decisions.truncated("/a") == "/a"
    assert decisions.truncated("\udcff") == "\\udcff"


# Packs


def test_the_hash_does_not_depend_on_the_order() -> None:
    shuffled = {
        name: random.sample(value, len(value)) if isinstance(value, list) else value
        for name, value in BODY.items()
    }
    assert parsed().manifest_hash == validated(ContextPack, shuffled).manifest_hash
    assert [entry.path for entry in parsed().entries] == [
        "/workspace/notes",
        "/workspace/src/a.py",
        "/workspace/src/b.py",
    ]
    assert parsed().tool_allowlist == ["Execute", "ListFiles", "Read", "Write"]


@pytest.mark.parametrize(
    "members",
    [
        {"manifest_id": "other"},
        {"profile_id": None},
        {"entries": BODY["entries"][:2]},
        {"entries": [{**BODY["entries"][0], "content_hash": OTHER}, *BODY["entries"][1:]]},
        {"entries": [{**BODY["entries"][0], "stable_id": None}, *BODY["entries"][1:]]},
        {"tool_allowlist": ["Read"]},
        {"write_allowlist": ["/workspace/out"]},
        {"shell_allowlist": ["grep *"]},
    ],
)
def test_a_changed_pack_is_found(members: dict[str, Any]) -> None:
    known = parsed().manifest_hash
    assert parsed(manifest_hash=known).manifest_hash == known
    with pytest.raises(ValidationError, match="another content"):
        parsed(**members, manifest_hash=known)


def test_an_id_is_made_from_the_content() -> None:
    first, second = parsed(manifest_id=None), parsed(manifest_id=None, profile_id=None)
    assert first.manifest_id is not None
    assert first.manifest_id.startswith("pack-")
    assert first.manifest_id != second.manifest_id
    # A pack that was written with it is read again.
    assert ContextPack.model_validate(first.model_dump()) == first


def entry(**members: Any) -> dict[str, Any]:
    return {"entries": [BODY["entries"][0], {"path": "x", **members}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"surplus": 1}, "surplus"),
    (entry(surplus=1), "entries.1.surplus"),
    (entry(path="../../x"), "entries.1.path"),
    (entry(path=""), "entries.1.path"),
    (entry(path="/etc/passwd"), "entries.1.path"),
    (entry(path="/workspace"), "entries.1.path"),
    (entry(path="a" * 4097), "entries.1.path"),
    (entry(path="/a" * 257), "entries.1.path"),
    (entry(content_hash="ab" * 32), "entries.1.content_hash"),
    (entry(content_hash="blake3:" + "ab" * 32), "entries.1.content_hash"),
    (entry(access_level="Write"), "entries.1.access_level"),
    (entry(access_level="ReadWithZoom"), "entries.1"),
    (entry(stable_id="x" * 4097), "entries.1.stable_id"),
    (entry(path="src/./b.py"), "entries.1.path"),
    (entry(stable_id="b"), "entries.1.stable_id"),
    ({"entries": [{"path": f"f{n}"} for n in range(10_001)]}, "entries"),
    ({"entries": [{"path": f"{n}/" + "d/" * 200 + "f" * 200} for n in range(300)]}, "entries"),
    ({"tool_allowlist": ["Delete"]}, "tool_allowlist.0"),
    ({"tool_allowlist": ["Read"] * 101}, "tool_allowlist"),
    ({"write_allowlist": ["/workspace/out", "out"]}, "write_allowlist.1"),
    ({"write_allowlist": ["/workspace/out/../log"]}, "not '/workspace/out/../log'"),
    ({"write_allowlist": ["./out"]}, "not './out'"),
    ({"write_allowlist": [""]}, "write_allowlist.0"),
    ({"write_allowlist": ["/etc/out"]}, "write_allowlist.0"),
    ({"write_allowlist": ["/workspace/out"] * 1001}, "write_allowlist"),
    (
        {"write_allowlist": [f"/workspace/{n}/" + "d" * 2000 for n in range(600)]},
        "write_allowlist",
    ),
    ({"shell_allowlist": ["ls\nrm"]}, "shell_allowlist.0"),
    ({"shell_allowlist": ["x" * 1025]}, "shell_allowlist.0"),
    ({"shell_allowlist": ["ls"] * 501}, "shell_allowlist"),
    ({"mode": "off"}, "mode"),
    ({"manifest_id": "x" * 4097}, "manifest_id"),
]


@pytest.mark.parametrize(("members", "place"), REFUSED)
def test_what_is_no_pack_is_refused_by_its_place(members: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parsed(**members)
    assert place in f"{refused.value.fields.get('field')} {refused.value.detail}"


def test_the_largest_pack_is_one() -> None:
    entries = [{"path": f"src/{n}"} for n in range(pack_form.MOST_ENTRIES)]
    assert len(parsed(entries=entries).entries) == pack_form.MOST_ENTRIES


def test_it_is_stored_as_a_whole() -> None:
    whole = made()
    assert Pack.restored(whole.stored()) == whole
    # Of an ended session, the rest may be unknown: it permits nothing.
    again = Pack(whole.manifest_id, whole.manifest_hash, whole.mode)
    assert again.recorded() == whole.recorded()
    assert isinstance(decisions.reading(again, "/workspace/notes"), Denial)


# Decisions


def ruled(found: PackFile | Denial | None) -> tuple[str, bool] | None:
    return (found.rule, found.misses) if isinstance(found, Denial) else None


@pytest.mark.parametrize(
    ("path", "stated", "expected"),
    [
        ("/workspace/src/b.py", None, None),
        ("/workspace/src/b.py", HASH, None),
        ("/workspace/src/b.py", OTHER, (decisions.HASH_MISMATCH, True)),
        ("/workspace/src/a.py", HASH, None),
        ("/workspace/src/a.py", None, (decisions.HASH_REQUIRED, False)),
        ("/workspace/notes", OTHER, None),
        ("/workspace/src", None, (decisions.ALLOWLIST, True)),
        ("/workspace/src/c.py", None, (decisions.ALLOWLIST, True)),
        ("/etc/passwd", None, (decisions.ALLOWLIST, True)),
    ],
)
def test_reads(path: str, stated: str | None, expected: Any) -> None:
    assert ruled(decisions.reading(made(), path, stated)) == expected


def test_content_is_compared_with_the_pack() -> None:
    file = PackFile("/workspace/a", HASH)
    assert decisions.content(file, HASH) is None
    assert ruled(decisions.content(file, OTHER)) == (decisions.TOCTOU, True)
    assert decisions.content(PackFile("/workspace/a"), OTHER) is None


def test_an_empty_pack_permits_nothing() -> None:
    empty = Pack("empty", HASH)
    for found in (
        decisions.reading(empty, "/workspace/notes"),
        decisions.listing(empty, "/workspace"),
        decisions.writing(empty, "/workspace/out"),
    ):
        assert ruled(found) == (decisions.TOOL, False)
    with pytest.raises(DeniedError):
        decisions.check_command(empty, ["ls"])
    level = load_levels(None)["low"]
    told = consume_of(empty, level)
    assert told is not None
    assert (told["entries"], told["directories"], told["writes"]) == ([], [], [])
    assert consume_of(None, level) is None


def test_directories_above_a_file_are_listed() -> None:
    whole = made()
    for path in ("/workspace", "/workspace/src", "/workspace/out", "/workspace/out/deep"):
        assert decisions.listing(whole, path) is None
    for path in ("/workspace/lib", "/", "/etc"):
        assert ruled(decisions.listing(whole, path)) == (decisions.ALLOWLIST, True)
    assert not decisions.visible(whole, "/workspace/secret")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/workspace/out", True),
        ("/workspace/out/x", True),
        ("/workspace/outx", False),
        ("/workspace/src/a.py", False),
        ("/workspace", False),
    ],
)
def test_writes_are_allowed_by_component(path: str, allowed: bool) -> None:
    assert (decisions.writing(made(), path) is None) is allowed


@pytest.mark.parametrize(
    ("argv", "allowed"),
    [
        (["ls"], True),
        (["grep", "-r", "x", "."], True),
        (["grep", "a b"], True),
        (["ls", "-l"], False),
        (["grepx", "a"], False),
        (["grep"], False),
        (["ls", ";", "rm"], False),
        (["grep", "x", ";", "rm"], False),
        (["grep", "$(rm)"], False),
        (["grep", "x\nrm"], False),
    ],
)
def test_commands(argv: list[str], allowed: bool) -> None:
    if allowed:
        decisions.check_command(made(), argv)
        return
    with pytest.raises(DeniedError) as refused:
        decisions.check_command(made(), argv)
    assert refused.value.rule == decisions.SHELL


def test_an_exact_command_may_have_operators() -> None:
    whole = made(shell_allowlist=["bash -c 'ls ; ls'"])
    decisions.check_command(whole, ["bash", "-c", "ls ; ls"])


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab", max_size=8))
def test_a_star_stands_for_any_text(pattern: str, text: str) -> None:
    import re

    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text)
    assert decisions._matches(pattern, text, [text]) is (expected is not None)


def test_a_class_that_is_not_listed_is_denied_first() -> None:
    whole = made(tool_allowlist=["Read"])
    assert isinstance(decisions.reading(whole, "/workspace/notes"), PackFile)
    assert ruled(decisions.writing(whole, "/workspace/out")) == (decisions.TOOL, False)
    assert decisions.outside_pack(whole, "psql") is not None
    assert decisions.outside_pack(None, "psql") is None
    with pytest.raises(ValueError, match="must be one of"):
        pack_form.tool_class("Everything")
    assert pack_form.tool_class("EXEC") is ToolClass.EXECUTE


# Packs of local files


def test_a_pack_is_made_of_files(tmp_path: Path) -> None:
    (tmp_path / "src" / ".git").mkdir(parents=True)
    for name in ("src/a.py", "src/.git/config", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("b")
    whole = pack(tmp_path, shell=["ls *"])
    assert [entry.path for entry in whole.entries] == ["/workspace/b", "/workspace/src/a.py"]
    assert whole.entries[0].content_hash == content_hash(tmp_path / "b")
    assert whole.tool_allowlist == ["Execute", "ListFiles", "Read", "Search"]
    part = pack(tmp_path / "src" / "a.py", root=tmp_path, write=["out"])
    assert [entry.path for entry in part.entries] == ["/workspace/src/a.py"]
    assert part.write_allowlist == ["/workspace/out"]
    with pytest.raises(ValueError, match="is not in"):
        pack(tmp_path / "b", root=tmp_path / "src")
    with pytest.raises(ModelError):
        pack(tmp_path, tools=["Everything"])


@pytest.mark.parametrize(
    ("writes", "tools", "constant"),
    [
        ((), {ToolClass.WRITE}, True),
        (("/workspace/out", "/workspace/src/login"), {ToolClass.WRITE}, True),
        (("/workspace/src/login.py",), {ToolClass.WRITE}, False),
        (("/workspace/src",), {ToolClass.WRITE}, False),
        (("/workspace",), {ToolClass.WRITE}, False),
        (("/workspace",), {ToolClass.READ}, True),
    ],
)
def test_a_pack_is_constant_unless_its_files_may_be_written(
    writes: tuple[str, ...], tools: set[ToolClass], constant: bool
) -> None:
    file = PackFile("/workspace/src/login.py")
    found = Pack("", "", files={file.path: file}, tools=frozenset(tools), writes=writes)
    assert found.constant is constant


def test_the_longest_path_is_what_the_kernel_opens() -> None:
    names = "/".join(["d" * 15] * 250)
    longest = f"{names}/{'f' * (4095 - len(f'/workspace/{names}/'))}"
    assert len(absolute(longest)) == 4095
    assert absolute(f"/workspace/{longest}") == absolute(longest)
    for longer in (f"{longest}f", f"/workspace/{longest}f", f"./{longest}{'/' * 300}"):
        with pytest.raises(ValueError, match="at most 4095 bytes"):
            absolute(longer)
