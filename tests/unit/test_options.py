"""Parsing of command lines, compared with the standard library's getopt."""

import getopt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.decide.options import SAFE, VALUES, Parsed, Table, parse_find, parse_options

HEAD, GREP, TAIL, LS, DATE = (SAFE[name] for name in ("head", "grep", "tail", "ls", "date"))


READ: list[tuple[Table, str, list[tuple[str, str]], list[str]]] = [
    (GREP, "-rn foo src", [("r", ""), ("n", "")], ["foo", "src"]),
    (GREP, "-A 3 x", [("A", "3")], ["x"]),
    (GREP, "-A3 x", [("A", "3")], ["x"]),
    (GREP, "-inA3 x", [("i", ""), ("n", ""), ("A", "3")], ["x"]),
    (GREP, "-15 x", [("1", ""), ("5", "")], ["x"]),
    (GREP, "x -i y", [("i", "")], ["x", "y"]),
    (GREP, "-e -f x", [("e", "-f")], ["x"]),
    (GREP, "--regexp -f x", [("regexp", "-f")], ["x"]),
    (GREP, "-- -f x", [], ["-f", "x"]),
    (GREP, "x - y", [], ["x", "-", "y"]),
    (GREP, "--color x", [("color", "")], ["x"]),
    (GREP, "--color=auto x", [("color", "auto")], ["x"]),
    (HEAD, "-5 a", [("5", "")], ["a"]),
    (HEAD, "-n5 a", [("n", "5")], ["a"]),
    (HEAD, "-n -5 a", [("n", "-5")], ["a"]),
    (HEAD, "--lines 5 a", [("lines", "5")], ["a"]),
    (HEAD, "--lines=5 a", [("lines", "5")], ["a"]),
    (HEAD, "-n", [("n", "")], []),
    (TAIL, "-fn 20 a", [("f", ""), ("n", "20")], ["a"]),
    (TAIL, "--follow name", [("follow", "")], ["name"]),
    (DATE, "-I seconds", [("I", "")], ["seconds"]),
    (DATE, "-uIseconds", [("u", ""), ("I", "seconds")], []),
    (LS, "-la1 --sort=size", [("l", ""), ("a", ""), ("1", ""), ("sort", "size")], []),
]


def test_options_are_read_as_getopt_reads_them() -> None:
    for table, line, options, operands in READ:
        assert parse_options(line.split(), table) == Parsed(options, operands), (
            table,
            line,
            options,
            operands,
        )


@pytest.mark.parametrize(
    ("table", "line", "refused"),
    [
        (GREP, "-rf x", "-f"),
        (GREP, "--file=x", "--file"),
        (GREP, "--fil x", "--fil"),
        (GREP, "--colo=auto", "--colo"),
        (GREP, "--count=3", "--count"),
        (GREP, "--=x", "--"),
        (GREP, "--color=?=x --colour=?", None),
        (GREP, "-:", "-:"),
        (GREP, "a -R", "-R"),
        # head does not read these as a value of -c.
        (HEAD, "-5c /etc/passwd", "-5"),
        (HEAD, "-\u0665", "-\u0665"),
        (LS, "-l5", "-5"),
    ],
)
def test_what_is_not_in_the_table_is_refused(table: Table, line: str, refused: str | None) -> None:
    assert parse_options(line.split(), table).refused == refused


def test_lenient_reading_takes_abbreviations_and_unknown_flags() -> None:
    cp = VALUES["cp"]
    read = parse_options(["-afz", "--target-dir", "/etc", "--su=~", "--new", "a"], cp, lenient=True)
    assert read.refused is None
    assert read.values("target-directory") == ["/etc"]
    assert read.values("suffix") == ["~"]
    assert read.operands == ["a"]
    # --head is a flag of curl, not an abbreviation of --header.
    read = parse_options(["--head", "-sSLo", "x", "http://h"], VALUES["curl"], lenient=True)
    assert read.values("o") == ["x"]
    assert read.operands == ["http://h"]


@pytest.mark.parametrize(
    ("line", "operands"),
    [
        ("", []),
        (". -name *.py", ["."]),
        ("a b -type f -newer c -o -samefile ../d", ["a", "b", "c", "../d"]),
        ("-P a -name -exec -print", ["a"]),
        ("a ( -name x -o -name y ) -prune , ! -empty", ["a"]),
        ("-- a - -mtime -3", ["--", "a", "-"]),
        ("a -name x ../late", ["a", "../late"]),
        ("a -newer", ["a", ""]),
    ],
)
def test_find_is_read(line: str, operands: list[str]) -> None:
    assert parse_find(line.split()) == (parse_find(line.split()).options, operands, None)


@pytest.mark.parametrize("name", sorted(SAFE))
def test_no_option_is_listed_twice(name: str) -> None:
    table = SAFE[name]
    letters = table.short.replace(":", "")
    words = [word.rstrip("=?") for word in table.long.split()]
    assert len(set(letters)) == len(letters)
    assert len(set(words)) == len(words)


WORDS = st.one_of(
    st.text(alphabet="-=cnqvz5/.a", max_size=6),
    st.sampled_from(["--", "-", "--lines", "--lines=3", "--quiet", "--bytes", "-n", "-qc", "-c9"]),
)


@given(st.lists(WORDS, max_size=8))
def test_what_is_accepted_means_what_getopt_says(args: list[str]) -> None:
    table = Table("read", "c:n:qvz", "bytes= lines= quiet silent verbose")
    read = parse_options(args, table)
    if read.refused is not None:
        return
    try:
        options, operands = getopt.gnu_getopt(args, table.short, table.long.split())
    except getopt.GetoptError as error:
        assert "requires argument" in error.msg  # the program will say so  # noqa: PT017
        return
    assert read.operands == operands
    assert read.options == [(name.lstrip("-"), value) for name, value in options]


@given(st.lists(st.text(max_size=8), max_size=8), st.sampled_from(sorted(SAFE)), st.booleans())
def test_reading_is_total(args: list[str], name: str, lenient: bool) -> None:
    table = VALUES.get(name, SAFE[name]) if lenient else SAFE[name]
    read = parse_options(args, table, lenient)
    assert read.refused is None or not lenient
    assert read == parse_options(args, table, lenient)
    assert set(parse_find(args).operands) <= {*args, ""}
