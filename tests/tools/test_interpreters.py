"""The manifests of python3 and node with the real interpreters, at medium."""

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.real_tool import RealTool

pytestmark = pytest.mark.asyncio(loop_scope="module")

PYTHON_COMMANDS = ("calculate", "assign", "show", "aggregate", "import_math", "call_math")
PYTHON_ESCAPES = (
    "import os",
    "import math, os",
    "import math as os",
    "from os import system",
    "__import__('os')",
    "__import__",
    "__builtins__",
    "open('/etc/passwd')",
    "exec(input())",
    "eval(x)",
    "sum(open(0))",
    "sorted(x, key=exec)",
    "().__class__",
    "math.__loader__",
    "math.sqrt(exec(x))",
    "math.sqrt.__self__",
    "a = b = 1",
    "a = open",
    "lambda: 0",
    "f'{x}'",
    "1 if x else 2",
    "def f(): 1",
    "@x",
    "a: int",
    "[x for x in y]",
    # Lines that continue on the next line: together they could do what no single line may.
    "(2",
    "a = (2",
    "(2 + (3)",
    "2 + \\",
    "[",
    "'''",
    "{",
)
NODE_COMMANDS = ("calculate", "assign", "show", "call_math")
NODE_ESCAPES = (
    "require('fs')",
    "process.exit(1)",
    "process.binding('spawn_sync')",
    "process",
    "globalThis.process",
    "import('fs')",
    "Math.constructor",
    "Math.constructor.constructor('return process')()",
    "Math['constructor']",
    "const a = Math",
    "const a = require",
    "Function('return 1')()",
    "eval(x)",
    "() => 1",
    "`x`",
    ".load x",
    ".save x",
    ".editor",
    "var a = 1",
    "(2",
    "2 /* 3",
    "(2 // 3)",
    "const a = [",
    "{",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> Box:
    return await Box.create(plane, "medium")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python3(box: Box) -> RealTool:
    return await RealTool.open(box, "python3")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(box: Box) -> RealTool:
    return await RealTool.open(box, "node")


async def test_python_computes(python3: RealTool) -> None:
    assert await python3.said("calculate", "((2 + 3) * 4) ** 2 / 8") == "50.0"
    assert await python3.said("assign", "sizes = [3, 5, 8]") == ""
    assert await python3.said("assign", "rate = (1 + 2) * 3") == ""
    assert await python3.said("aggregate", "total = sum(sizes)") == ""
    assert await python3.said("show", "total") == "16"
    assert await python3.said("aggregate", "max(total, rate)") == "16"
    assert await python3.said("import_math", "import math") == ""
    assert await python3.said("call_math", "math.sqrt(total)") == "4.0"
    assert "ZeroDivisionError" in await python3.said("calculate", "1 / 0")
    assert "SyntaxError" in await python3.said("calculate", "2 +")
    # Keywords do not leave the interpreter in the middle of a statement.
    for word in ("if", "def", "lambda", "class", "try", "async", "match"):
        assert "Error" in await python3.said("show", word)
    assert await python3.state() == "ready"


@pytest.mark.parametrize("text", PYTHON_ESCAPES)
async def test_no_way_out_reaches_python(python3: RealTool, text: str) -> None:
    for command in PYTHON_COMMANDS:
        await python3.refuses(command, text)


async def test_the_level_holds_any_python(plane: ControlPlane) -> None:
    box = await Box.create(plane, "medium")
    python3 = await RealTool.open(box, "loose-python3")
    await python3.said("any", "import os")
    await python3.said("any", "os.system('/usr/bin/mkfifo escaped')")
    assert "Permission denied" in await python3.said("any", "os.execv('/bin/sh', ['sh'])")
    assert "Permission denied" in await python3.said("any", "open('/etc/shadow')")
    assert "Permission denied" in await python3.said("any", "open('/usr/bin/mkfifo', 'rb')")
    assert "Permission denied" in await python3.said("any", "open('/proc/1/environ')")
    assert "Error" in await python3.said("any", "os.kill(1, 9)")
    await python3.said("any", "import socket")
    said = await python3.said("any", "socket.create_connection(('1.1.1.1', 80), 5)")
    assert "Network is unreachable" in said
    assert await box.paths() == []
    await box.close()


async def test_node_computes(node: RealTool) -> None:
    assert await node.said("calculate", "((2 + 3) * 4) ** 2 / 8") == "50"
    assert await node.said("assign", "const sizes = [3, 5, 8]") == "undefined"
    assert await node.said("call_math", "Math.max(...sizes)") == "8"
    assert await node.said("call_math", "const root = Math.sqrt(16)") == "undefined"
    assert await node.said("show", "root") == "4"
    assert "ReferenceError" in await node.said("show", "nothing")
    assert "SyntaxError" in await node.said("calculate", "(2 /  / 3)")
    for word in ("function", "class", "new", "if", "while", "typeof", "return"):
        assert "SyntaxError" in await node.said("show", word)
    assert await node.state() == "ready"


@pytest.mark.parametrize("text", NODE_ESCAPES)
async def test_no_way_out_reaches_node(node: RealTool, text: str) -> None:
    for command in NODE_COMMANDS:
        if (command, text) != ("show", "process"):  # an ordinary name
            await node.refuses(command, text)


async def test_the_level_holds_any_javascript(plane: ControlPlane) -> None:
    box = await Box.create(plane, "medium")
    node = await RealTool.open(box, "loose-node")
    spawn = "require('child_process').execFileSync('/usr/bin/mkfifo', ['escaped'])"
    assert "EACCES" in await node.said("any", spawn)
    await node.said("any", "process.binding('spawn_sync').spawn({file: '/usr/bin/mkfifo', "
                           "args: ['mkfifo', 'escaped'], stdio: [{type: 'ignore'}]})")  # fmt: skip
    assert "EACCES" in await node.said("any", "require('fs').readFileSync('/etc/shadow')")
    assert "EACCES" in await node.said("any", "require('fs').readFileSync('/usr/bin/mkfifo')")
    assert "ReferenceError" in await node.said("any", "WebAssembly")
    assert await box.paths() == []
    await box.close()
