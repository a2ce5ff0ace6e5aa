"""Line numbers of fields in TOML files."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.policy.toml_lines import Field, line_of, syntax_error

DOCUMENT = '''\
# a comment with [brackets] and "quotes"
rank = 100  # 5 = 6
"quoted key" = 1
'literal.key' = 2
commands = [
    "ls",  # "ghost",
    "cat", "a ] b",

    'tail',
]
text = """
[limits]
cpus = "\\""""" # still one text
raw = \'\'\'
[timeout] \\\'\'\'
when = 1979-05-27 07:32:00
dotted.inner.name = true
inline = { first = 1, "second one" = [1, 2], third.part = "}" }

[limits]
cpus = 1.0
  memory_bytes=1_000

[ confinement . "deep er" ]
paths = false
nested = [[1], [
  2,
  3]]
[[tables]]
x = 1
[[tables]]
y = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("rank",), 2),
        (("quoted key",), 3),
        (("literal.key",), 4),
        (("commands",), 5),
        (("commands", 0), 6),
        (("commands", 1), 7),
        (("commands", 2), 7),
        (("commands", 3), 9),
        (("commands", 4), 5),
        (("text",), 11),
        (("raw",), 14),
        (("when",), 16),
        (("dotted",), 17),
        (("dotted", "inner", "name"), 17),
        (("dotted", "inner", "missing"), 17),
        (("inline", "first"), 18),
        (("inline", "second one", 1), 18),
        (("inline", "third", "part"), 18),
        (("limits",), 20),
        (("limits", "cpus"), 21),
        (("limits", "memory_bytes"), 22),
        (("limits", "pids"), 20),
        (("confinement",), 24),
        (("confinement", "deep er"), 24),
        (("confinement", "deep er", "paths"), 25),
        (("confinement", "deep er", "nested", 1, 1), 28),
        (("tables",), 29),
        (("tables", 0, "x"), 30),
        (("tables", 1), 31),
        (("tables", 1, "y"), 32),
        (("timeout",), 1),
        (("timeout", "max"), 1),
    ],
)
def test_lines(path: Field, line: int) -> None:
    tomllib.loads(DOCUMENT)
    assert line_of(DOCUMENT, path) == line
    assert line_of(DOCUMENT.replace("\n", "\r\n"), path) == line


def test_items_that_are_alike() -> None:
    text = 'a = [\n  "x",\n  "x",\n  "\\u0000",\n]\n'
    assert [line_of(text, ("a", item)) for item in range(3)] == [2, 3, 4]


def test_tables_that_are_apart() -> None:
    text = "[a.b]\nx = 1\n[c]\nx = 1\n[a.d]\nx = 1\n"
    wanted = {("a", "b", "x"): 2, ("c",): 3, ("c", "x"): 4, ("a", "d"): 5, ("a", "d", "x"): 6}
    assert {path: line_of(text, path) for path in wanted} == wanted


def test_an_empty_document() -> None:
    assert line_of("", ("rank",)) == line_of("# nothing", ()) == 1


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a = 1\n[b", 2, "Expected ']' at the end of a table declaration"),
        ("a = 1\nb = \nc = 1", 2, "Invalid value"),
        ("a = 1\n\nb = [1,", 3, "Invalid value"),
        ("a = 1\na = 2", 2, "Cannot overwrite a value"),
    ],
)
def test_broken_syntax(text: str, line: int, said: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    found, message = syntax_error(text, caught.value)
    assert (found, message.startswith(said)) == (line, True), message


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
PLAIN = st.one_of(TEXTS.map(quoted), st.integers(-99, 99).map(str), st.sampled_from(["true"]))
ARRAYS = st.lists(PLAIN, max_size=4).map(lambda items: "[\n" + ",\n".join(items) + "\n]")
MEMBERS = st.dictionaries(NAMES, st.one_of(PLAIN, ARRAYS), max_size=6)


@pytest.mark.slow
@given(MEMBERS, st.dictionaries(NAMES, MEMBERS, max_size=4))
def test_whatever_the_parser_takes_is_read_to_its_end(
    first: dict[str, str], tables: dict[str, dict[str, str]]
) -> None:
    lines: list[str] = []
    wanted: dict[Field, int] = {}

    def add(table: Field, members: dict[str, str]) -> None:
        for name, value in members.items():
            wanted.setdefault((*table, name), len(lines) + 1)
            lines.extend(f"{quoted(name)} = {value} # [x] = '".split("\n"))

    add((), first)
    for name, members in tables.items():
        if name in first:
            continue
        wanted[(name,)] = len(lines) + 1
        lines.append(f"[{quoted(name)}]")
        add((name,), members)
    text = "\n".join(lines)
    assert set(tomllib.loads(text)) == {path[0] for path in wanted}
    for path, line in wanted.items():
        assert line_of(text, path) == line
