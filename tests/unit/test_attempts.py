"""The table of attacks is read from the tests' source."""

from pathlib import Path

import pytest

from scripts.attempts import Attempt, attempts_of, modules

TESTS = Path(__file__).parents[1]
SOURCE = '''"""A title. And more.

Not this."""

@attempt("one thing", layer="mounts")
@attempt("another", layer="words", levels="low medium")
async def test_one() -> None: ...

@attempts({"a": "first", "b": "second"}, layer="seccomp", levels="high")
@pytest.mark.parametrize("x", [1])
async def test_many(level: str, name: str) -> None: ...

@spellings(("ls | x", "`y`", "z\\n", ""), text="in words", layer="words")
def test_words(level: str, name: str) -> None: ...

def test_unmarked() -> None: ...
'''


def test_rows_are_what_the_marks_say(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(SOURCE)
    every = ("low", "medium", "high")
    title, rows = attempts_of(path)
    assert title == "A title. And more"
    assert rows == [
        Attempt("one thing", every, "mounts", "test_one"),
        Attempt("another", ("low", "medium"), "words", "test_one"),
        Attempt("first", ("high",), "seccomp", "test_many[a]"),
        Attempt("second", ("high",), "seccomp", "test_many[b]"),
        Attempt("in words: `ls | x`, `` `y` ``, `z\\n`, nothing", every, "words", "test_words"),
    ]


def test_a_level_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text('@attempt("x", layer="y", levels="low, medium")\ndef test_x(): ...\n')
    with pytest.raises(ValueError, match="test_x"):
        attempts_of(path)


def test_every_module_of_attacks_has_its_rows() -> None:
    found = modules(TESTS)
    texts = {path: path.read_text() for path in (TESTS / "security").glob("test_*.py")}
    # A module without tests of its own repeats those of others.
    attacking = {
        path for path, text in texts.items() if "support.att" in text and "def test_" in text
    }
    assert attacking <= set(found)
    assert all(title for title, _ in map(attempts_of, found))
