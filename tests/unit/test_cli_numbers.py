"""Numbers of the command line are finite."""

from collections.abc import Iterator
from typing import Any

import pytest

from paddock.cli.program import build, main


def with_floats(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that takes a float, up to that option."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from with_floats(below, *path, name)
        return
    words = ["1" for each in command.params if each.param_type_name == "argument"]
    for each in command.params:
        if "float" in repr(each.type_descriptor.annotation):
            yield (*path, max(each.opts, key=len), *words)


FOUND = list(with_floats(build()))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "nan"])
def test_each_float_option_refuses_what_is_not_finite(
    number: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PADDOCK_KEY", "pdk_some-key-that-is-not-used")
    assert len(FOUND) >= 8
    for words in FOUND:
        place = next(place for place, word in enumerate(words) if word.startswith("--"))
        line = [*words[:place], f"{words[place]}={number}", "--", *words[place + 1 :]]
        assert main(line) == 2, line
        said = capsys.readouterr().err
        assert words[place] in said, line
        assert "finite" in said or "Input should be" in said, said
