"""The manifest of psql with a PostgreSQL server, at medium."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from tests.support.box import Box
from tests.support.real_tool import RealTool
from tests.support.tool import results

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = "/usr/lib/postgresql/15/bin"
# Grouped by purpose: a shell, files, another server, another statement.
ESCAPES = (
    "\\! id",
    "\\!",
    "\\o |id",
    "\\o /workspace/x",
    "\\g |id",
    "SELECT 1 \\g |id",
    "SELECT 1 \\gexec",
    "SELECT 1 \\watch",
    "\\copy t TO PROGRAM 'id'",
    "\\copy t FROM '/etc/passwd'",
    "\\i /etc/passwd",
    "\\ir x",
    "\\e",
    "\\ef",
    "\\s /workspace/x",
    "\\w /workspace/x",
    "\\set x `id`",
    "\\setenv PAGER id",
    "\\pset pager always",
    "\\lo_import /etc/passwd",
    "\\c postgres postgres",
    "\\connect host=example.org",
    "\\cd /",
    "\\password",
    "COPY t TO PROGRAM 'id'",
    "SELECT 1; COPY t TO PROGRAM 'id'",
    "SELECT 1;\\! id",
    "SELECT 1 -- x",
    "SELECT 1 /* x",
    "SELECT 'a",
    "SELECT $$a",
    "DO $$BEGIN END$$",
    "CREATE TABLE x ()",
    "GRANT ALL ON t TO PUBLIC",
    "SET ROLE postgres",
)
# Statements that match their command's form but do more, each with that command.
MORE = (
    ("select_query", "SELECT * INTO copied FROM stock"),
    ("select_query", "SELECT pg_read_file('/etc/passwd')"),
    ("select_query", "SELECT lo_import('/etc/passwd')"),
    ("select_query", "SELECT ('/etc/passwd').pg_read_file"),
    ("select_query", "SELECT x.pg_read_file FROM lower('/etc/passwd') AS x"),
    ("select_query", "SELECT * FROM stock FOR UPDATE"),
    ("insert", "INSERT INTO stock VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET name = 'x'"),
    ("insert", "INSERT INTO stock SELECT 9, pg_read_file('/etc/passwd')"),
)
# Lines that would leave a file behind if psql executed a program.
SHELLS = (
    "\\! /usr/bin/mkfifo escaped",
    "\\o |/usr/bin/mkfifo escaped",
    "\\o",
    "SELECT 1 \\g |/usr/bin/mkfifo escaped",
    "\\copy (SELECT 1) TO PROGRAM '/usr/bin/mkfifo escaped'",
    "\\set x `/usr/bin/mkfifo escaped`",
    "\\setenv EDITOR /usr/bin/mkfifo",
    "\\e escaped",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> Box:
    return await Box.create(plane, "medium", mounts=("postgresql",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def psql(box: Box) -> AsyncIterator[RealTool]:
    tool = await RealTool.open(box, "psql")
    yield tool
    await tool.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table(plane: ControlPlane) -> str:
    """A table, created with a manifest that allows any statement."""
    box = await Box.create(plane, "medium", mounts=("postgresql",))
    tool = await RealTool.open(box, "loose-psql")
    await tool.said("any", "CREATE TABLE stock (id integer PRIMARY KEY, name text);")
    await box.close()
    return "stock"


async def test_statements(psql: RealTool, table: str) -> None:
    assert await psql.said("insert", f"INSERT INTO {table} VALUES (1, 'pen'), (2, 'ink; and so')")
    said = await psql.said("select_query", f"SELECT name FROM {table} WHERE id = 2")
    assert said == "    name     \n-------------\n ink; and so\n(1 row)\n"
    described = await psql.said("describe_table", f"\\d {table}")
    assert "integer" in described
    assert "PRIMARY KEY" in described
    assert "QUERY PLAN" in await psql.said("explain", f"EXPLAIN SELECT * FROM {table}")


async def test_states_of_a_transaction(psql: RealTool) -> None:
    assert await psql.state() == "ready"
    await psql.said("begin", "BEGIN")
    assert await psql.state() == "transaction"
    assert "does not exist" in await psql.said("select_query", "SELECT nothing")
    assert await psql.state() == "error"
    assert "aborted" in await psql.said("select_query", "SELECT 1")
    await psql.said("end", "ROLLBACK")
    assert await psql.state() == "ready"


async def test_long_and_wide_output(psql: RealTool) -> None:
    said = await psql.said("select_query", "SELECT generate_series(1, 20000)")
    assert said.splitlines()[2:-1] == [f"{n:16}" for n in range(1, 20001)]
    assert said.splitlines()[-1] == "(20000 rows)"
    assert "x" * 5000 in await psql.said("select_query", "SELECT repeat(chr(120), 5000)")
    # Output that looks like a prompt is ordinary output.
    assert "appdb=> " in await psql.said("select_query", "SELECT 'appdb=> '")


async def test_an_update_waits_for_a_person(psql: RealTool, table: str) -> None:
    line = f"UPDATE {table} SET name = 'pencil' WHERE id = 1"
    envelope = await psql.do("update", line)
    assert envelope.status == "pending"
    assert "pen" in await psql.said("select_query", f"SELECT name FROM {table} WHERE id = 1")
    waiting = asyncio.create_task(psql.do("update", line, wait=30))
    assert await psql.decide("approve") == line
    envelope = await waiting
    assert results(envelope).output == "UPDATE 1"
    assert "pencil" in await psql.said("select_query", f"SELECT name FROM {table} WHERE id = 1")


async def test_a_denied_drop_drops_nothing(plane: ControlPlane, table: str) -> None:
    box = await Box.create(plane, "high", mounts=("postgresql",))
    psql = await RealTool.open(box, "psql")
    envelope = await psql.do("drop_table", f"DROP TABLE {table}")
    assert envelope.status == "pending"
    await psql.decide("deny")
    with pytest.raises(PermissionDeniedError) as denied:
        await psql.do("drop_table", f"DROP TABLE {table}")
    assert denied.value.fields["rule"] == "human-approval"
    assert "(2 rows)" in await psql.said("select_query", f"SELECT * FROM {table}")
    await box.close()


async def test_what_the_level_does_not_permit(psql: RealTool, table: str) -> None:
    await psql.refuses("drop_table", f"DROP TABLE {table}", "risk-tier")
    await psql.refuses("delete", f"DELETE FROM {table} WHERE id = 1", "risk-tier")


@pytest.mark.parametrize("text", ESCAPES)
async def test_no_way_out_reaches_psql(psql: RealTool, text: str) -> None:
    for command in ("select_query", "describe_table", "insert"):
        await psql.refuses(command, text)


@pytest.mark.parametrize(("command", "text"), MORE)
async def test_what_does_more_than_its_command_reaches_nothing(
    psql: RealTool, table: str, command: str, text: str
) -> None:
    await psql.refuses(command, text, "statement")


async def test_what_looks_like_a_column_can_be_a_call(plane: ControlPlane) -> None:
    """The reason for the refusal: PostgreSQL calls the function."""
    box = await Box.create(plane, "medium", mounts=("postgresql",))
    psql = await RealTool.open(box, "loose-psql")
    for text in ("SELECT x.upper FROM lower('Abc') AS x;", "SELECT ('Abc'::text).upper;"):
        assert "ABC" in await psql.said("any", text)
    await box.close()


async def test_an_insert_that_updates_waits_for_a_person(psql: RealTool, table: str) -> None:
    line = f"INSERT INTO {table} VALUES (7, 'a') ON CONFLICT (id) DO UPDATE SET name = 'b'"
    assert (await psql.do("upsert", line)).status == "pending"
    assert "(0 rows)" in await psql.said("select_query", f"SELECT * FROM {table} WHERE id = 7")


async def test_the_level_holds_what_a_loose_manifest_lets_through(plane: ControlPlane) -> None:
    box = await Box.create(plane, "medium", mounts=("postgresql",))
    psql = await RealTool.open(box, "loose-psql")
    for line in SHELLS:
        await psql.said("any", line)
    assert await box.paths() == []
    assert "Permission denied" in await psql.said("any", "\\i /etc/shadow")
    assert "Permission denied" in await psql.said("any", "\\i /usr/bin/mkfifo")
    assert "Read-only" in await psql.said("any", "\\copy (SELECT 1) TO /run/postgresql/x")
    # The role's rights limit what the server itself may do.
    said = await psql.said("any", "COPY (SELECT 1) TO PROGRAM 'touch escaped';")
    assert "must be superuser" in said
    assert [process.name() for process in box.processes()] == ["psql"]
    await box.close()


async def test_the_documented_manifest_works_as_it_is(plane: ControlPlane) -> None:
    """The manifest's server listens on localhost, which is the session's own network."""
    box = await Box.create(plane, "high")
    initdb = "-D db -A trust -N -U owner --locale=C -E UTF8"
    made = await box.bash(f"{SERVER}/initdb {initdb}")
    assert made.exit_code == 0, made.stderr
    settings = "-c fsync=off -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    server = await box.start(f"{SERVER}/postgres -D db {settings}")
    await box.printed(server, "ready to accept connections")
    for line in (
        "createuser -h 127.0.0.1 -U owner agent_user",
        "createdb -h 127.0.0.1 -U owner -O agent_user appdb",
    ):
        done = await box.run(f"{SERVER}/{line}")
        assert done.exit_code == 0, done.stderr
    psql = await RealTool.open(box, "psql_session")
    assert "2" in (await psql.said("select_query", "SELECT 1 + 1")).split()
    assert "(1 row)" in await psql.said("select_query", "SELECT current_user")
    envelope = await psql.do("update", "UPDATE users SET name = 'x'")
    assert envelope.status == "pending"
    await psql.close()
    evidence = plane.settings.state_dir / "evidence" / box.session.key
    assert b"SELECT 1 + 1" in (evidence / f"{psql.id}-psql" / "raw").read_bytes()
    await box.close()


async def test_psql_needs_its_mount(plane: ControlPlane) -> None:
    box = await Box.create(plane, "medium")
    with pytest.raises(PermissionDeniedError, match="needs a session with the mount postgresql"):
        await RealTool.open(box, "psql")
    await box.close()
