"""SQL lines are parsed for their actions and calls; anything else is refused."""

import asyncio
import logging
import string
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.rules.tools import line_reader
from orchestrator.rules.tools.line_reader import LineReader
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.manifest_reader import ManifestError
from orchestrator.rules.tools.sql import read_statement
from orchestrator.rules.tools.statements import Reading, SqlError, refusal
from tests.support.manifests import parse
from tests.support.raised import raised
from tests.support.until import until

_HEAD = """
[tool]
name = "db"
mode = "session"
[session]
startup_command = "psql"
ready_pattern = "^> $"
[session.interaction]
parser = "sql"
dialect = "postgresql"
[session.commands.query]
pattern = "^.+$"
"""


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        (
            "SELECT a.x, count(*) FROM a JOIN b USING (id) WHERE x ~ 'q' GROUP BY 1 LIMIT 3",
            "select",
        ),
        ("select lower(x) as low from (values (1, 'é;--')) as t(a, x)", "select"),
        ("EXPLAIN SELECT 1", "select"),
        ("TABLE t", "select"),
        (
            "SELECT now(), to_char(a, 'x'), date_trunc('day', b), string_agg(c, ','), "
            "cast(d AS char(3)), e LIKE ('x'), EXISTS (SELECT 1), length(f), json_agg(g), "
            "extract(year FROM b), substring(c FROM 1 FOR 2), repeat('x', 3), nullif(a, b) FROM t",
            "select",
        ),
        ("INSERT INTO t (a) VALUES (1) RETURNING a", "insert"),
        ('INSERT INTO "T" (a) SELECT a FROM u', "insert"),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "insert"),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2", "insert update"),
        ("UPDATE t SET a = 1 FROM u WHERE t.id = u.id", "update"),
        ("DELETE FROM t USING u WHERE t.id = u.id", "delete"),
        ("WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "delete"),
        ("WITH new AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM new", "insert"),
        ("WITH a AS (UPDATE t SET a = 1 RETURNING *) DELETE FROM u", "delete update"),
        ("CREATE TABLE t AS SELECT 1", "create"),
        ("CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL DEFAULT 'x')", "create"),
        ("ALTER TABLE t ADD COLUMN b int", "alter"),
        ("DROP TABLE a, b CASCADE", "drop"),
        ("TRUNCATE t", "truncate"),
        ("COMMIT", "transaction"),
    ],
)
def test_what_postgresql_would_do(text: str, actions: str) -> None:
    assert read_statement(text, "postgresql") == (frozenset(actions.split()), frozenset())


@pytest.mark.parametrize(
    ("dialect", "text", "actions"),
    [
        ("mysql", "SELECT `a`, ifnull(b, 1) FROM t", "select"),
        ("mysql", "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", "insert update"),
        ("mysql", "SHOW COLUMNS FROM t", "show"),
        ("mysql", "USE shop", "use"),
        ("sqlite", "SELECT strftime('%Y', a), total(b) FROM t", "select"),
        ("sqlite", "DELETE FROM t WHERE a = 1", "delete"),
    ],
)
def test_what_others_would_do(dialect: str, text: str, actions: str) -> None:
    assert read_statement(text, dialect) == (frozenset(actions.split()), frozenset())


@pytest.mark.parametrize(
    ("dialect", "text", "function"),
    [
        ("postgresql", "SELECT pg_read_file('/etc/passwd')", "pg_read_file"),
        ("postgresql", "SELECT pg_catalog.PG_READ_FILE('x')", "pg_catalog.pg_read_file"),
        ("postgresql", "SELECT * FROM pg_catalog.pg_ls_dir('/')", "pg_catalog.pg_ls_dir"),
        ("postgresql", "SELECT mine.lower('x')", "mine.lower"),
        ("postgresql", "SELECT 1 FROM t WHERE a = (SELECT lo_import('x'))", "lo_import"),
        ("postgresql", "INSERT INTO t VALUES (dblink_exec('x', 'y'))", "dblink_exec"),
        ("postgresql", "SELECT query_to_xml('DROP TABLE t', true, true, '')", "query_to_xml"),
        ("postgresql", "SELECT nextval('x')", "nextval"),
        # Functions that the parser knows from other databases; here they must be user-defined.
        ("postgresql", "SELECT contains('x', 'y')", "contains"),
        ("postgresql", "SELECT 1 FROM t WHERE Ends_With (a, 'x')", "ends_with"),
        ("mysql", "SELECT initcap(a) FROM t", "initcap"),
        ("mysql", "SELECT LOAD_FILE('/etc/passwd')", "load_file"),
        ("mysql", "SELECT sleep(10)", "sleep"),
        ("sqlite", "SELECT load_extension('x')", "load_extension"),
        ("sqlite", "SELECT readfile('x')", "readfile"),
        ("sqlite", "SELECT * FROM pragma_table_info('t')", "pragma_table_info"),
    ],
)
def test_functions_that_may_do_anything_are_named(dialect: str, text: str, function: str) -> None:
    assert function in read_statement(text, dialect).functions


NOT_UNDERSTOOD = (
    [
        ("postgresql", text)
        for text in (
            "SELECT 1 INTO t",
            "SELECT * FROM t FOR UPDATE",
            "SELECT 1; DROP TABLE t",
            "SELECT 1;",
            "COPY t TO '/tmp/x'",
            "COPY t TO PROGRAM 'id'",
            "DO 'BEGIN END'",
            "DO $$BEGIN END$$",
            "CALL f()",
            "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 1",
            "EXPLAIN ANALYZE SELECT 1",
            "EXPLAIN (ANALYZE) SELECT 1",
            "EXPLAIN DELETE FROM t",
            "CREATE FUNCTION f() RETURNS int AS 'x' LANGUAGE sql",
            "CREATE OR REPLACE VIEW v AS SELECT 1",
            "DROP FUNCTION f",
            "DROP SCHEMA s",
            "SET ROLE postgres",
            "GRANT ALL ON t TO x",
            "LOCK t",
            "PREPARE p AS SELECT 1",
            "SELECT 1 OPERATOR(evil.+) 1",
            'SELECT "pg_read_file"(1)',
            "SELECT U&'!0061' UESCAPE '!'",
            "SELECT U&\"!0061\"(1) UESCAPE '!'",
            "SELECT E'x'",
            "SELECT :'x'",
            "SELECT :x",
            "SELECT 1 -- x",
            "SELECT 1 /* x */",
            "SELECT {# x #} 1",
            "SELECT $1",
            "SELECT '\\'",
            "\\! id",
            "\\d t",
            "SELECT 1 \\g x",
            "SELECT f\u00a0(1)",
            "SELECT (1",
            "SELECT 'x",
            "help",
            "",
            " ",
        )
    ]
    + [
        ("mysql", text)
        for text in (
            "SELECT 1 INTO @x",
            "SELECT * FROM t INTO OUTFILE '/tmp/x'",
            "SELECT 1 UNION SELECT 2 INTO DUMPFILE '/tmp/x'",
            "SELECT 1 /*! INTO OUTFILE '/tmp/x' */",
            "SELECT 1 # x",
            "SELECT {x load_file('/etc/passwd')}",
            "SELECT @a := 1",
            "SELECT * FROM t LOCK IN SHARE MODE",
            "REPLACE INTO t VALUES (1)",
            "HANDLER t OPEN",
            "LOAD DATA INFILE 'x' INTO TABLE t",
            "system ls",
            "source x",
        )
    ]
    + [
        ("sqlite", text)
        for text in (
            "ATTACH 'x' AS y",
            "PRAGMA writable_schema = 1",
            "VACUUM INTO 'x'",
            "INSERT OR REPLACE INTO t VALUES (1)",
            ".shell id",
            ".load x",
            "SELECT [load_extension]('x')",
        )
    ]
)


def test_what_is_not_understood_is_refused() -> None:
    for dialect, text in NOT_UNDERSTOOD:
        assert raised(SqlError, read_statement, text, dialect), (dialect, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # Each level can be read in several ways, so the number of readings grows exponentially.
        ("SELECT " + "array[" * 15 + "1" + "]" * 15, "too complex"),
        ("SELECT a" + "[1]" * 2000, "brackets"),
        ("SELECT " + "NOT " * 2000 + "a", "too deeply"),
        ("SELECT " + "- " * 3000 + "1", "too deeply"),
        ("SELECT " + "1," * 4090 + "1", "words and signs"),
    ],
)
def test_hostile_nesting_is_refused_after_a_bounded_number_of_steps(text: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        read_statement(text, "postgresql")


_WORDS = st.sampled_from(
    [
        "SELECT",
        "INSERT",
        "INTO",
        "UPDATE",
        "SET",
        "DELETE",
        "FROM",
        "WHERE",
        "WITH",
        "a",
        "t",
        "x",
        "AS",
        "(",
        ")",
        ",",
        "*",
        "1",
        "'x'",
        "=",
        ";",
        "VALUES",
        "CASE",
        "WHEN",
        "END",
        "DROP",
        "TABLE",
        "ON",
        "CONFLICT",
        "DO",
        "array",
        "[",
        "]",
        "::",
        "int",
        "INTERVAL",
        "COPY",
        "DO",
        "EXPLAIN",
    ]
)


@given(
    st.one_of(
        st.lists(_WORDS, max_size=30).map(" ".join),
        st.text(alphabet=string.printable, max_size=60),
        st.text(max_size=40),
    ),
    st.sampled_from(["postgresql", "mysql", "sqlite"]),
)
@example("SELECT a[]", "postgresql")
def test_any_text_is_read_or_refused(text: str, dialect: str) -> None:
    try:
        statement = read_statement(text, dialect)
    except SqlError:
        return
    assert statement.actions


def test_what_is_sent_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(SqlError):
        read_statement("CALL f('a-secret')", "postgresql")
    assert "a-secret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (_HEAD + "[output]", "session.commands.query.statements: is missing"),
        (_HEAD.replace('dialect = "postgresql"\n', "") + "[output]", "session.interaction.dialect"),
        (_HEAD.replace('parser = "sql"\n', "") + "[output]", "session.interaction.parser"),
        (
            _HEAD.replace('parser = "sql"\ndialect = "postgresql"\n', "")
            + 'statements = ["select"]\n[output]',
            "session.commands.query.statements: needs session.interaction",
        ),
        (_HEAD + 'statements = ["select", "unparsed"]\n[output]', "unparsed stands alone"),
        (_HEAD + 'statements = ["read"]\n[output]', "session.commands.query.statements"),
        (_HEAD + 'statements = ["select"]\nfunctions = ["F()"]\n[output]', "functions"),
    ],
)
def test_manifests_declare_statements_with_the_parser_only(text: str, field: str) -> None:
    with pytest.raises(ManifestError, match=field.replace(".", r"\.")):
        parse(text)


async def test_lines_are_read_off_the_loop() -> None:
    manifest = parse(_HEAD + 'statements = ["select"]\n[output]')
    reading = await LineReader().read("session", manifest, "SELECT 1")
    assert reading is not None
    assert reading.statement == (frozenset({"select"}), frozenset())
    reading = await LineReader().read("session", manifest, "SELECT (")
    assert reading is not None
    assert reading.statement is None


async def test_a_line_that_takes_for_ever_keeps_its_own_session_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = parse(_HEAD + 'statements = ["select"]\n[output]')
    command, release, read = manifest.commands["query"], threading.Event(), line_reader.read_line

    def hang(manifest: Manifest, text: object) -> Reading | None:
        if text == "SELECT slowly":
            release.wait()
        return read(manifest, text)

    reader = LineReader()
    monkeypatch.setattr(line_reader, "read_line", hang)
    with monkeypatch.context() as patch:
        patch.setattr(line_reader, "_SECONDS", 0.01)
        slow = await reader.read("slow", manifest, "SELECT slowly")
    assert slow is not None
    assert "in time" in str(refusal(slow, command))
    # A caller whose thread has not returned gets no further threads.
    again = await reader.read("slow", manifest, "SELECT 1")
    assert again is not None
    assert again.statement is None
    other = await reader.read("other", manifest, "SELECT 1")
    assert other is not None
    assert refusal(other, command) is None
    release.set()
    await until(lambda: not reader._threads._left)
    again = await reader.read("slow", manifest, "SELECT 1")
    assert again is not None
    assert refusal(again, command) is None


async def test_a_caller_that_leaves_does_not_have_the_next_line_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = parse(_HEAD + 'statements = ["select"]\n[output]')
    command, read = manifest.commands["query"], line_reader.read_line
    began, release = threading.Event(), threading.Event()

    def hang(manifest: Manifest, text: object) -> Reading | None:
        if text == "SELECT slowly":
            began.set()
            release.wait()
        return read(manifest, text)

    reader = LineReader()
    monkeypatch.setattr(line_reader, "read_line", hang)
    leaving = asyncio.create_task(reader.read("session", manifest, "SELECT slowly"))
    await until(began.is_set)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    again = asyncio.create_task(reader.read("session", manifest, "SELECT 1"))
    await until(lambda: again.done() or reader._queue.waiting == 1)
    release.set()
    reading = await again
    assert reading is not None
    assert refusal(reading, command) is None
    await reader.close()
