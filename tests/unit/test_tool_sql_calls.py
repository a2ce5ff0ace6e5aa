"""However a statement calls a function, the call is found or the statement is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.sql import read_statement
from orchestrator.rules.tools.statements import SqlError

_DANGEROUS = {
    "postgresql": (
        "pg_read_file",
        "pg_ls_dir",
        "lo_import",
        "dblink_exec",
        "query_to_xml",
        "nextval",
        "set_config",
        "pg_sleep",
    ),
    "mysql": ("load_file", "sleep", "benchmark", "get_lock", "sys_exec"),
    "sqlite": ("load_extension", "readfile", "writefile", "edit", "eval"),
}
# Contexts of an expression within another expression.
_AROUND = (
    "({})",
    "- {}",
    "NOT {}",
    "{} + 1",
    "1 = {}",
    "{} || 'x'",
    "{} IS NULL",
    "{} IS DISTINCT FROM 1",
    "1 BETWEEN 0 AND {}",
    "{} IN (1, 2)",
    "1 IN (1, {})",
    "'a' LIKE {}",
    "'a' LIKE 'b' ESCAPE {}",
    "'a' SIMILAR TO {}",
    "CASE WHEN {} THEN 1 ELSE 2 END",
    "CASE {} WHEN 1 THEN 2 END",
    "CASE WHEN 1 THEN 2 ELSE {} END",
    "CAST({} AS text)",
    "{}::text",
    "coalesce(1, {})",
    "nullif({}, 1)",
    "lower({})",
    "extract(year FROM {})",
    "substring('x' FROM {})",
    "substring('x' FROM 1 FOR {})",
    "trim({} FROM 'x')",
    "position({} IN 'x')",
    "overlay('x' PLACING {} FROM 1)",
    "{} AT TIME ZONE 'utc'",
    "now() AT TIME ZONE {}",
    "ARRAY[{}]",
    "a[{}]",
    "a[1:{}]",
    "ROW({}, 1)",
    "({}, 1) = (1, 2)",
    "1 = ANY({})",
    "1 = ANY(ARRAY[{}])",
    "EXISTS (SELECT {})",
    "(SELECT {})",
    "1 = ALL(SELECT {})",
    "count({})",
    "count(DISTINCT {})",
    "count(*) FILTER (WHERE {})",
    "sum(a) OVER (PARTITION BY {})",
    "sum(a) OVER (ORDER BY {})",
    "sum(a) OVER (ROWS BETWEEN {} PRECEDING AND {} FOLLOWING)",
    "array_agg(a ORDER BY {})",
    "string_agg(a, {})",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY {})",
    "group_concat(a ORDER BY {} SEPARATOR ',')",
    "json_build_object('a', {})",
    "a -> {}",
    "a ->> {}",
    "a #> {}",
    "interval '1 day' * {}",
    "{} COLLATE x",
    "{} ~ 'x'",
    "{} REGEXP 'x'",
    "convert({}, char)",
    "date_add(a, INTERVAL {} day)",
    "if({}, 1, 2)",
    "greatest(1, {})",
)
# Contexts of an expression within a statement.
_STATEMENTS = (
    "SELECT {}",
    "SELECT a FROM t WHERE {}",
    "SELECT a AS b, {} AS c FROM t",
    "SELECT DISTINCT {} FROM t",
    "SELECT DISTINCT ON ({}) a FROM t",
    "SELECT a FROM t GROUP BY {}",
    "SELECT a FROM t GROUP BY GROUPING SETS (({}), a)",
    "SELECT a FROM t GROUP BY ROLLUP ({})",
    "SELECT a FROM t GROUP BY a HAVING {}",
    "SELECT a FROM t ORDER BY a, {} DESC NULLS LAST",
    "SELECT a FROM t LIMIT {}",
    "SELECT a FROM t LIMIT 1 OFFSET {}",
    "SELECT a FROM t FETCH FIRST {} ROWS ONLY",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY {})",
    "SELECT a FROM t JOIN u ON {}",
    "SELECT a FROM t LEFT JOIN LATERAL (SELECT {}) x ON true",
    "SELECT a FROM (SELECT {}) x",
    "SELECT a FROM t, generate_series(1, {}) x",
    "SELECT a FROM unnest({}) x",
    "SELECT a FROM t TABLESAMPLE bernoulli({})",
    "SELECT a FROM t FOR UPDATE OF {}",
    "SELECT a INTO b FROM t WHERE {}",
    "SELECT 1 UNION SELECT {}",
    "SELECT 1 EXCEPT ALL SELECT {} ORDER BY 1",
    "WITH x AS (SELECT {}) SELECT a FROM x",
    "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT {} FROM x) SELECT a FROM x",
    "WITH x AS MATERIALIZED (DELETE FROM t WHERE {} RETURNING a) SELECT a FROM x",
    "VALUES (1, {})",
    "EXPLAIN SELECT {}",
    "EXPLAIN ANALYZE SELECT {}",
    "INSERT INTO t VALUES (1, {})",
    "INSERT INTO t (a) SELECT {}",
    "INSERT INTO t VALUES (1) RETURNING {}",
    "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = {}",
    "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE {}",
    "INSERT INTO t VALUES (1) ON CONFLICT (({})) DO NOTHING",
    "INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE {} DO NOTHING",
    "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = {}",
    "INSERT INTO t SET a = {}",
    "REPLACE INTO t VALUES ({})",
    "UPDATE t SET a = {}",
    "UPDATE t SET (a, b) = (1, {})",
    "UPDATE t SET a[{}] = 1",
    "UPDATE t SET a = 1 FROM u WHERE {} RETURNING a",
    "UPDATE t SET a = 1 RETURNING {}",
    "UPDATE t SET a = 1 ORDER BY {} LIMIT 1",
    "DELETE FROM t WHERE {}",
    "DELETE FROM t USING u WHERE {} RETURNING a",
    "DELETE FROM t RETURNING {}",
    "CREATE TABLE x AS SELECT {}",
    "CREATE TABLE x (a int DEFAULT ({}))",
    "CREATE TABLE x (a int CHECK ({}))",
    "CREATE TABLE x (a int, CONSTRAINT c CHECK ({}))",
    "CREATE TABLE x (a int GENERATED ALWAYS AS ({}) STORED)",
    "CREATE TABLE x (a int) PARTITION BY RANGE (({}))",
    "CREATE TABLE x (a int, EXCLUDE USING gist (({}) WITH =))",
    "CREATE VIEW x AS SELECT {}",
    "CREATE MATERIALIZED VIEW x AS SELECT {}",
    "CREATE INDEX x ON t (({}))",
    "CREATE UNIQUE INDEX x ON t (a) WHERE {}",
    "CREATE POLICY x ON t USING ({})",
    "CREATE TRIGGER x BEFORE INSERT ON t WHEN ({}) EXECUTE FUNCTION f()",
    "ALTER TABLE t ALTER COLUMN a SET DEFAULT {}",
    "ALTER TABLE t ALTER COLUMN a TYPE int USING {}",
    "ALTER TABLE t ADD COLUMN b int DEFAULT {}",
    "ALTER TABLE t ADD CONSTRAINT c CHECK ({})",
    "SET x = {}",
    "CALL f({})",
    "DO {}",
    "SHOW TABLES WHERE {}",
    "COPY (SELECT {}) TO STDOUT",
    "PREPARE x AS SELECT {}",
    "MERGE INTO t USING u ON {} WHEN MATCHED THEN DELETE",
)
_CALLS = (
    "{0}('x')",
    "{0} ( )",
    "{0}('x', 1)",
    "{0}(DISTINCT a)",
    "{0}(a ORDER BY b)",
    "s.{0}('x')",
)
_CALLS_BY_NAME = {
    "postgresql": (
        "('x').{0}",
        "('x'::text).{0}",
        "(a.b).{0}",
        "(SELECT a).{0}",
        "(lower('x')).{0}",
        "(array['x'])[1].{0}",
        "(SELECT x.{0} FROM lower('x') AS x)",
        "(SELECT lower.{0} FROM lower('x'))",
        "(SELECT u.{0} FROM unnest(ARRAY['x']) u)",
        "(SELECT x.{0} FROM CAST('x' AS text) x, t)",
        "(SELECT x.{0} FROM t CROSS JOIN LATERAL lower('x') x)",
        "(SELECT x.{0} FROM current_user x)",
        "(SELECT x.{0} FROM (SELECT 1 FROM t x) y, upper('x') x)",
    ),
    "mysql": (),
    "sqlite": ("(SELECT a FROM {0}('x'))", "a IN {0}('x')", "(SELECT a FROM main.{0}('x') AS x)"),
}


@st.composite
def _statements(draw: st.DrawFn) -> tuple[str, str, str]:
    """A dialect, a statement, and the name of the function that the statement calls."""
    dialect = draw(st.sampled_from(sorted(_DANGEROUS)))
    name = draw(st.sampled_from(_DANGEROUS[dialect]))
    spelled = draw(st.sampled_from((name, name.upper(), name.title())))
    call = draw(st.sampled_from(_CALLS + _CALLS_BY_NAME[dialect])).format(spelled)
    for around in draw(st.lists(st.sampled_from(_AROUND), max_size=3)):
        call = around.replace("{}", call)
    return dialect, draw(st.sampled_from(_STATEMENTS)).replace("{}", call), name


def _names(dialect: str, text: str) -> set[str]:
    """The names of the functions in a statement, without schemas."""
    return {name.rpartition(".")[2] for name in read_statement(text, dialect).functions}


@given(_statements())
def test_a_call_is_named_wherever_it_stands(case: tuple[str, str, str]) -> None:
    dialect, text, name = case
    try:
        names = _names(dialect, text)
    except SqlError:
        return
    assert name in names


@pytest.mark.slow
@pytest.mark.parametrize("dialect", sorted(_DANGEROUS))
def test_each_place_by_itself(dialect: str) -> None:
    name = _DANGEROUS[dialect][0]
    places = [*_STATEMENTS, *(f"SELECT {around}" for around in _AROUND)]
    understood = 0
    for place in places:
        for call in (_CALLS[0], *_CALLS_BY_NAME[dialect]):
            text = place.replace("{}", call.format(name))
            try:
                assert name in _names(dialect, text), text
            except SqlError:
                continue
            understood += 1
    assert understood > len(places) / 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM fsdir WHERE path = '/etc'",
        "SELECT * FROM main.fsdir",
        "SELECT * FROM 'fsdir'",
        'SELECT * FROM t, "fsdir" AS x',
        "SELECT 1 IN fsdir",
        "SELECT 1 IN main.fsdir",
        "SELECT 1 IN 'fsdir'",
        "INSERT INTO t SELECT name FROM FSDIR",
    ],
)
def test_tables_of_sqlite_that_are_functions(text: str) -> None:
    assert _names("sqlite", text) == {"fsdir"}


@pytest.mark.parametrize(
    ("dialect", "text", "names"),
    [
        ("sqlite", "SELECT name FROM sqlite_master", set()),
        ("sqlite", "SELECT * FROM pragma_database_list", {"pragma_database_list"}),
        ("sqlite", "SELECT * FROM sqlite_dbpage", {"sqlite_dbpage"}),
        ("postgresql", "SELECT t.a, u.* FROM t JOIN s.u ON t.id = u.id", set()),
        ("postgresql", "WITH x AS (SELECT 1 AS a) UPDATE t SET a = x.a FROM x", set()),
        ("postgresql", "SELECT v.a FROM (VALUES (1)) AS v(a), LATERAL (SELECT 1) w", set()),
        ("postgresql", "SELECT u.v, u.u FROM unnest(ARRAY[1]) AS u(v)", set()),
        ("postgresql", "SELECT u.w FROM unnest(ARRAY[1]) AS u(v)", {"w"}),
        ("postgresql", "SELECT t.pg_read_file FROM t", {"pg_read_file"}),
        ("postgresql", "SELECT (t).*, count(t.*) FROM t", set()),
        ("postgresql", "SELECT '1'::int, a::citext, a::varchar(3)[] FROM t", set()),
        ("postgresql", "SELECT CAST('x' AS mood), a::s.kind[] FROM t", {"mood", "kind"}),
    ],
)
def test_what_may_be_a_call_is_named_and_nothing_else(
    dialect: str, text: str, names: set[str]
) -> None:
    assert _names(dialect, text) == names


@pytest.mark.parametrize("text", ["SELECT * FROM 'fsdir'('.')", "SELECT * FROM main.'fsdir' ('.')"])
def test_texts_are_no_names_of_functions(text: str) -> None:
    with pytest.raises(SqlError, match="in quotes"):
        read_statement(text, "sqlite")
