"""What reads what others send takes time that grows with its size, and never long.

CPU time of this thread is compared, so the machine's load matters little; and with the time of a
known task, so its speed matters little, too.
What is read on the event loop takes less than `_SLICE` at its limit. What is read aside, in a
thread, has no step of that length, during which the interpreter can do nothing else.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from api.http.auth import is_own
from api.http.endpoint import read_query
from api.operations.run_sockets import wanted_run
from api.operations.terminal_frames import wanted_size
from api.previews.headers import for_program
from api.previews.paths import PreviewPath, read_path
from api.shape.context import whole_position
from api.shape.objects import parse_object, validated
from orchestrator.host.link.frames import LARGE, parse_frame
from orchestrator.operate.snapshots import manifest
from orchestrator.operate.snapshots.archive import MOST_MANIFEST_BYTES
from orchestrator.programs.questions.questions import words_of
from orchestrator.programs.turns.lisp.limits import LispLimits
from orchestrator.programs.turns.lisp.program import LispProgram
from orchestrator.programs.turns.lisp.reader import read as read_lisp
from orchestrator.record.secrets.request_head import parse_head
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.rules.policy.decision import check_command
from orchestrator.rules.policy.explanation import explain_command
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.tools import cedar
from orchestrator.rules.tools.scope import Scope, load_scope
from orchestrator.rules.tools.sql import read_statement
from orchestrator.sandbox.egress.client_hello import MOST_BYTES as MOST_HELLO
from orchestrator.sandbox.egress.client_hello import read_hello
from orchestrator.settings.allowed_hosts import AllowedHosts
from orchestrator.work.files.file_trees import patch_names
from paddock.client.http_messages import AnswerParser
from paddock.contract.command_requests import ExecBody
from paddock.contract.requests import Body
from paddock.contract.session_requests import SessionBody, SessionsQuery
from paddock.contract.turns import TurnBody
from paddock.contract.words import MAX_LINE
from sandbox_agent.decide.files.patterns import Pattern
from sandbox_agent.decide.globs import Globs
from sandbox_agent.decide.redaction import Redactor
from tests.conftest import RARE_COLLECTIONS, USUAL_COLLECTIONS
from tests.support.raised import raised

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
_SLICE = 0.05
# Four times the size takes four times as long, or sixteen times if it is the square.
_MOST_GROWTH = 10
# Below this, what does not depend on the size counts too much.
_COMPARABLE = 0.004
# On a busy machine, most tries are disturbed.
_TRIES = 10
# A task, and what it takes where `_SLICE` is to hold.
_TASK = json.dumps([{f"name-{n}": n, "text": "a b c"} for n in range(5000)])
_TASK_SECONDS = 0.0016

LEVELS = load_levels()
HIGH, LOW = LEVELS["high"], LEVELS["low"]
# What is made for a size, and what reads it.
Make = Callable[[int], Any]
Read = Callable[[Any], object]


@pytest.fixture(scope="module", autouse=True)
def collections_as_usual() -> Iterator[None]:
    """Garbage is collected as in a control plane: often, and without a look at what was before.

    What other tests have left would take the longest of all steps.
    """
    gc.set_threshold(*USUAL_COLLECTIONS)
    gc.collect()
    gc.freeze()
    yield
    gc.set_threshold(*RARE_COLLECTIONS)


def cpu(read: Read, value: Any) -> float:
    """The CPU time of reading a value, refused or not."""
    began = time.thread_time()
    raised(Exception, read, value)
    return time.thread_time() - began


def longest_step(read: Read, value: Any) -> float:
    """The longest CPU time between two calls or returns of functions, built-in ones included."""
    # It is called millions of times, so what it does itself counts.
    clock = time.thread_time
    longest, last = 0.0, clock()

    def note(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal longest, last
        now = clock()
        if now - last > longest:
            longest = now - last
        last = now

    sys.setprofile(note)
    try:
        raised(Exception, read, value)
    finally:
        sys.setprofile(None)
    return longest


def check_quick(measure: Callable[[], float], most: float) -> None:
    """It takes no longer than that, in one of some tries: other threads disturb the caches."""
    times: list[float] = []
    while not times or min(times) >= most:
        assert len(times) < _TRIES, times
        times.append(measure())


def usual(measure: Callable[[], float]) -> float:
    """The seconds that are measured, as a machine of the usual speed would take them."""
    seconds = measure()
    task = cpu(lambda text: json.loads(text, object_pairs_hook=dict), _TASK)
    return seconds / max(1.0, task / _TASK_SECONDS)


def check_growth(make: Make, read: Read, limit: int) -> None:
    """It takes no longer than so many times the time for a quarter, in one of some tries."""
    value, quarter = make(limit), make(limit // 4)

    def excess() -> float:
        whole = cpu(read, value)
        if whole <= _COMPARABLE:
            return 0.0
        return whole / max(cpu(read, quarter), _COMPARABLE / 4)

    check_quick(excess, _MOST_GROWTH)


def check_aside(make: Make, read: Read, limit: int, most: float = _SLICE, *, part: int = 1) -> None:
    """What is read in a thread.

    Looking at each step takes time itself: where there are millions, they are those of a part of
    the size, and may take that part of the time.
    """
    check_growth(make, read, limit)
    value = make(limit // part)
    check_quick(lambda: usual(lambda: longest_step(read, value)), most / part)


def check_on_loop(make: Make, read: Read, limit: int, most: float = _SLICE) -> None:
    """What is read at once."""
    check_growth(make, read, limit)
    value = make(limit)
    check_quick(lambda: usual(lambda: cpu(read, value)), most)


def each(*rows: tuple[str, int, Make, Read]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("limit", "make", "read"), [pytest.param(*row[1:], id=row[0]) for row in rows]
    )


def encoded(text: str) -> bytes:
    return text.encode()


def many(piece: str, size: int, before: str = "", after: str = "") -> str:
    """As many pieces as there is room for."""
    room = size - len(before) - len(after)
    return before + piece * (room // len(piece)) + after


def members(size: int, value: str = "1", *, repeated: bool = False) -> bytes:
    """An object with as many members; `repeated`: the last one has the name of the one before."""
    names = [f'"n{number:08}":{value}' for number in range(size // (12 + len(value)))]
    return f"{{{','.join([*names, *(names[-1:] if repeated else [])])}}}".encode()


def body(model: type[Body]) -> Read:
    model.model_rebuild()
    return lambda data: validated(model, parse_object(data))


JSON_TEXTS: list[tuple[str, Make]] = [
    # Those of more values than are read, and of as many as may be.
    ("names", members),
    ("fewer-names", lambda size: members(size // 5)),
    ("repeated", lambda size: members(size // 5, repeated=True)),
    ("objects", lambda size: many(',{"a":1}', size, '{"x":[0', "]}").encode()),
    ("fewer-objects", lambda size: many(',{"a":1}', size // 16, '{"x":[0', "]}").encode()),
    ("lists", lambda size: many(",[]", size, '{"x":[0', "]}").encode()),
    ("fewer-lists", lambda size: many(",[]", size // 43, '{"x":[0', "]}").encode()),
    ("fewer-texts", lambda size: many(',"a"', size // 16, '{"x":["a"', "]}").encode()),
    ("deep", lambda size: many("[", size, '{"x":').encode()),
    ("quotes", lambda size: many('"', size).encode()),
    ("texts", lambda size: many(',"a"', size, '{"x":["a"', "]}").encode()),
    ("escapes", lambda size: many("\\n", size, '{"stdin":"', '"}').encode()),
    ("backslashes", lambda size: many("\\\\", size, '{"stdin":"', '"}').encode()),
    ("escaped-quotes", lambda size: many('\\"', size, '{"stdin":"', '"}').encode()),
    ("surrogates", lambda size: many("\\ud83d\\ude00", size, '{"stdin":"', '"}').encode()),
    ("long-text", lambda size: many("é", size // 2, '{"stdin":"', '"}').encode()),
    ("digits", lambda size: many("9", size, '{"x":', "}").encode()),
    ("long-numbers", lambda size: many("," + "9" * 1300, size, '{"x":[0', "]}").encode()),
    ("fractions", lambda size: many("1", size, '{"x":0.', "}").encode()),
    ("space", lambda size: many(" ", size, '{"x":', "1}").encode()),
    ("no-space", lambda size: bytes(size)),
]


@pytest.mark.slow
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in JSON_TEXTS])
def test_json_bodies(make: Make) -> None:
    check_aside(make, body(ExecBody), 8 * MIB)


def dumped(value: Callable[[int], Any]) -> Make:
    return lambda count: json.dumps(value(count)).encode()


HASH = f"sha256:{'0' * 64}"


@pytest.mark.slow
@each(
    ("argv", 32_000, dumped(lambda n: {"argv": ["x"] * n}), body(ExecBody)),
    ("wrong-argv", 120_000, dumped(lambda n: {"argv": [1] * n}), body(ExecBody)),
    (
        "wrong-env",
        60_000,
        dumped(lambda n: {"env": {f"-{i}": 1 for i in range(n)}}),
        body(ExecBody),
    ),
    ("unknown", 60_000, dumped(lambda n: {f"-{i}": 1 for i in range(n)}), body(ExecBody)),
    (
        "operations",
        60_000,
        dumped(lambda n: {"operations": [{"operation": 1}] * n}),
        body(TurnBody),
    ),
    (
        "pack",
        10_000,
        dumped(
            lambda n: {
                "consume": {"entries": [{"path": f"a/{i}", "content_hash": HASH} for i in range(n)]}
            }
        ),
        body(SessionBody),
    ),
    (
        "wrong-pack",
        10_000,
        dumped(lambda n: {"consume": {"entries": [{"path": 1, f"x{i}": 1} for i in range(n)]}}),
        body(SessionBody),
    ),
)
def test_requests(limit: int, make: Make, read: Read) -> None:
    check_aside(make, read, limit)


def decided(level: Any) -> Read:
    return lambda argv: check_command(level, None, argv, None)


def explained(level: Any) -> Read:
    return lambda argv: explain_command(level, None, argv, None)


WORDS = 8_000
COMMANDS: list[tuple[str, Make]] = [
    ("options", lambda n: ["curl", *["--x"] * n]),
    ("abbreviations", lambda n: ["curl", *["--retry-dela"] * n]),
    ("hosts", lambda n: ["curl", *(f"http://h{i}.example/" for i in range(n // 2))]),
    ("one-host", lambda n: ["curl", *["http://h.example/"] * n]),
    ("addresses", lambda n: ["curl", *(f"http://10.0.{i % 256}.{i // 256}/" for i in range(n))]),
    ("paths", lambda n: ["cp", *["../" * 8] * n]),
    ("names", lambda n: ["cp", *(f"a{i}/b" for i in range(n)), "x"]),
    ("flags", lambda n: ["rm", *["-" + "f" * 60] * n]),
    ("tests", lambda n: ["find", *["-name"] * n]),
    ("python", lambda n: ["python3", "-m", *["x"] * n]),
]


@pytest.mark.slow
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in COMMANDS])
def test_words_of_commands(make: Make) -> None:
    for level in (LOW, HIGH):
        for read in (decided(level), explained(level)):
            check_growth(make, read, WORDS)
            # Looking at each step takes time itself.
            value = make(WORDS // 16)
            check_quick(partial(usual, partial(longest_step, read, value)), _SLICE)


@each(
    (
        "quotes",
        64 * 1024,
        lambda n: many("'a' ", n),
        lambda text: check_command(LOW, text, None, None),
    ),
    (
        "joined",
        64 * 1024,
        lambda n: many('"a"b', n),
        lambda text: check_command(LOW, text, None, None),
    ),
    (
        "open",
        64 * 1024,
        lambda n: many("a", n, "", '"'),
        lambda text: check_command(LOW, text, None, None),
    ),
    ("space", 64 * 1024, lambda n: " " * n, lambda text: check_command(LOW, text, None, None)),
)
def test_command_lines(limit: int, make: Make, read: Read) -> None:
    check_aside(make, read, limit)


def read_manifest(data: bytes) -> object:
    return manifest.read(data, lambda turn: None)


SNAPSHOTS: list[tuple[str, Make]] = [
    ("lists", lambda n: many(",[]", n, '{"version":1,"turns":[0', "]}").encode()),
    ("few-lists", lambda n: many(",[]", n // 22, '{"version":1,"turns":[0', "]}").encode()),
    ("unknown", lambda n: b'{"version":1,' + members(n // 5)[1:]),
    ("consumed", lambda n: b'{"version":1,"consumed":' + members(n // 5, '"x"') + b"}"),
    ("facts", lambda n: many(',"a"', n // 22, '{"version":1,"notes":{"facts":[0', "]}}").encode()),
    ("text", lambda n: many("\\n", n, '{"version":1,"status":"', '"}').encode()),
]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in SNAPSHOTS])
def test_manifests_of_snapshots(make: Make) -> None:
    # They have twice the values of a body, so that real ones fit.
    check_aside(make, read_manifest, MOST_MANIFEST_BYTES, 2 * _SLICE)


# As much as an event loop reads at once.
PIECE = 256 * 1024
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def fed(data: bytes) -> object:
    return AnswerParser().feed(data)


def fed_in_bytes(data: bytes) -> None:
    parser = AnswerParser()
    for place in range(len(data)):
        parser.feed(data[place : place + 1])


@each(
    ("chunks", PIECE, lambda n: CHUNKED + b"1\r\nx\r\n" * (n // 6), fed),
    ("larger", PIECE, lambda n: CHUNKED + (b"40\r\n%064d\r\n" % 0) * (n // 70), fed),
    ("trailers", PIECE, lambda n: CHUNKED + b"0\r\n" + b"a:\r\n" * (n // 4), fed),
    ("fields", 65_000, lambda n: OK + b"a:\r\n" * (n // 4) + b"\r\n", fed),
    ("spaces", 65_000, lambda n: OK + b"a:" + b" " * n + b"\0\r\n\r\n", fed),
    ("one-name", 65_000, lambda n: OK + b"a" * n + b"\r\n\r\n", fed),
    ("options", 65_000, lambda n: OK + b"Connection:" + b"," * n + b"\r\n\r\n", fed),
)
def test_answers_to_the_client(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)


@each(
    ("head", 60_000, lambda n: OK + b"a:" + b"x" * n, fed_in_bytes),
    ("body", 60_000, lambda n: OK + b"Content-Length: 999999\r\n\r\n" + b"x" * n, fed_in_bytes),
    ("chunk", 60_000, lambda n: CHUNKED + b"fffff\r\n" + b"x" * n, fed_in_bytes),
)
def test_answers_that_come_byte_by_byte(limit: int, make: Make, read: Read) -> None:
    check_growth(make, read, limit)


RUN_FRAME = 640 * 1024
TERMINAL_FRAME = 64 * 1024
FRAMES: list[tuple[str, Make]] = [(name, make) for name, make in JSON_TEXTS if name != "no-space"]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in FRAMES])
def test_frames_of_web_sockets(make: Make) -> None:
    """They are read on the event loop."""
    for limit, read in (
        (RUN_FRAME, lambda data: wanted_run(data.decode(), "s", ["low"])),
        (TERMINAL_FRAME, lambda data: wanted_size(data.decode())),
    ):
        check_on_loop(make, read, limit)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in JSON_TEXTS])
def test_frames_of_agents(make: Make) -> None:
    for bounds in LARGE.values():
        check_on_loop(make, partial(parse_frame, allowed=bounds), bounds.bytes)


def head(line: str) -> bytes:
    return f"GET http://a/ HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n".encode()


HEAD = EgressLimits().head_bytes


@each(
    ("space", HEAD, lambda n: head(f"x:{' ' * n}\1"), parse_head),
    ("tabs", HEAD, lambda n: head("x:" + "\t " * (n // 2) + "\1"), parse_head),
    ("words", HEAD, lambda n: head(f"x:{' a' * (n // 4)}{' ' * (n // 2)}\1"), parse_head),
    ("value", HEAD, lambda n: head(f"x: {'a' * n}"), parse_head),
    ("name", HEAD, lambda n: head("a" * n), parse_head),
    ("connection", HEAD, lambda n: head(f"connection: {'a,' * (n // 2)}"), parse_head),
    ("fields", HEAD, lambda n: head("a:b\r\n" * (n // 5) + "a:b"), parse_head),
    ("line", HEAD, lambda n: b"GET " + b"a" * n + b"\r\n\r\n", parse_head),
)
def test_requests_to_the_way_out(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)


def hello(body: bytes) -> bytes:
    message = b"\1" + len(body).to_bytes(3) + body
    return b"\x16\3\1" + len(message).to_bytes(2) + message


def extensions(size: int) -> bytes:
    listed = b"\0\1\0\0" * (size // 4)
    return hello(b"\3\3" + bytes(32) + b"\0\0\2\0\0\1\0" + len(listed).to_bytes(2) + listed)


@each(
    ("records", MOST_HELLO, lambda n: b"\x16\3\1\0\1\1" * (n // 6), read_hello),
    ("extensions", 16_000, extensions, read_hello),
)
def test_first_messages_of_tls(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit, _SLICE / 10)


LINE = 64 * 1024  # of a request
ORIGIN = "http://localhost:7070"
PATH = PreviewPath("a", 80, None, "/", "")
HOSTS = AllowedHosts("127.0.0.1", ())


def asked(text: str) -> object:
    return read_query(make_mocked_request("GET", f"/x?{text}"), SessionsQuery)


@each(
    (
        "cookies",
        LINE,
        lambda n: many("a=b; ", n),
        lambda t: for_program([("Cookie", t)], PATH, "http", "a"),
    ),
    (
        "semicolons",
        LINE,
        lambda n: ";" * n,
        lambda t: for_program([("Cookie", t)], PATH, "http", "a"),
    ),
    (
        "named",
        LINE,
        lambda n: "a," * (n // 2),
        lambda t: for_program([("Connection", t)], PATH, "http", "a"),
    ),
    ("path", LINE, lambda n: f"/s/a/80/~{'a' * n}", read_path),
    ("origin", LINE, lambda n: f"http://{'a' * n}@", lambda t: is_own(t, ORIGIN)),
    ("host", LINE, lambda n: "a." * (n // 2) + "!", lambda t: HOSTS.check([t])),
    ("parameters", LINE, lambda n: "&".join(["a=1"] * (n // 4)), asked),
    ("escapes", LINE, lambda n: "label=a:" + "%41" * (n // 3), asked),
    ("cursor", LINE, lambda n: "cursor=" + "a" * n, asked),
    ("digits", LINE, lambda n: "9" * n, whole_position),
    ("more-digits", LINE, lambda n: "9" * (n - 1) + "x", whole_position),
)
def test_parts_of_requests(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)


GLOBS = Globs([f"**/{'*a' * 32}{number}" for number in range(200)])


@each(
    ("braces", 1024, lambda n: ["{a,b}" * (n // 5)], Globs),
    ("nested", 1024, lambda n: ["{a," * (n // 4) + "b" + "}" * (n // 4)], Globs),
    ("stars", 16_000, lambda n: ["*a" * 32 + str(i) for i in range(n // 68)], Globs),
    ("match", 4096, lambda n: "a" * n, GLOBS.match),
    ("directories", 4096, lambda n: "a/" * (n // 2) + "a", GLOBS.match),
    ("question", 4096, lambda n: json.dumps(["a"] * (n // 5)).encode(), words_of),
    (
        "or",
        MAX_LINE,
        lambda n: many(" OR 1", n, "SELECT 1"),
        lambda t: read_statement(t, "postgresql"),
    ),
    (
        "casts",
        MAX_LINE,
        lambda n: many("::int", n, "SELECT 1"),
        lambda t: read_statement(t, "postgresql"),
    ),
    (
        "columns",
        4000,
        lambda n: many(",a", n, "SELECT a", " FROM t"),
        lambda t: read_statement(t, "sqlite"),
    ),
)
def test_globs_questions_and_statements(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)


def longest_breath(program: Generator[Any, Any, Any]) -> float:
    """The longest time between two breaths, in which nothing else runs.

    Without the collector of cycles, which looks through everything that the tests have made.
    """
    longest = 0.0
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            ended = raised(Exception, next, program) is not None
            longest = max(longest, time.thread_time() - began)
            if ended:
                return longest
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("piece", "before", "after"),
    [
        ("a ", "", ""),
        ("()", "", ""),
        ("(", "", ""),
        ("'", "", "a"),
        (";\n", "", ""),
        (" ;\n", "", ""),
        ("#||#", "", ""),
        ("#|", "", ""),
        ("\\n", '"', '"'),
        ('"a"', "", ""),
        ("9", "", ""),
        ("9", "", "x"),
        ("1.", "", ""),
        ("|a|", "", ""),
        ("#outcome(ok 1)", "", ""),
        ("a\n", "(", ")"),
    ],
)
def test_programs(piece: str, before: str, after: str) -> None:
    limit = LispLimits().program_characters

    def make(size: int) -> str:
        return many(piece, size, before, after)

    check_growth(make, lambda text: list(read_lisp(text, LispLimits())), limit)
    text = make(limit)
    check_quick(lambda: usual(lambda: longest_breath(read_lisp(text, LispLimits()))), _SLICE)


@pytest.mark.parametrize("form", ["(+ 1 2)\n", "(define (f x) x)\n", "1 "])
def test_programs_of_many_forms(form: str) -> None:
    text = many(form, LispLimits().program_characters // 2)

    def run() -> float:
        return longest_breath(LispProgram(text, operations=frozenset()).run())

    check_quick(partial(usual, run), _SLICE)


# Its parts are searched one after the other.
PART = 64 * 1024
SECRETS = Redactor(f"aaaaaaaaaaaaaaa{number}" for number in range(64))


@each(
    ("none", PART, lambda n: bytes(n), SECRETS.data),
    ("beginnings", PART, lambda n: b"a" * n, SECRETS.data),
    ("found", PART, lambda n: b"aaaaaaaaaaaaaaa7 " * (n // 17), SECRETS.data),
    ("adjoining", PART, lambda n: b"aaaaaaaaaaaaaaa7" * (n // 16), SECRETS.data),
    ("escapes", PART, lambda n: b"%61" * (n // 3), SECRETS.data),
    ("nested-escapes", PART, lambda n: b"%2525" * (n // 5), SECRETS.data),
    ("backslashes", PART, lambda n: b"\\" * n, SECRETS.data),
    ("unicode", PART, lambda n: b"\\u0061" * (n // 6), SECRETS.data),
    ("base64", PART, lambda n: b"YWFh" * (n // 4), SECRETS.data),
    ("spaced-base64", PART, lambda n: b"YWFh\n" * (n // 5), SECRETS.data),
    ("hex", PART, lambda n: b"61" * (n // 2), SECRETS.data),
)
def test_redaction(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)


def scope(entries: int) -> str:
    names = ", ".join(f'"h{number}.example"' for number in range(entries))
    networks = ", ".join(f'"10.{n // 256 % 256}.{n % 256}.0/24"' for n in range(entries))
    return f"[scope]\ntargets = [{networks}]\ndomains = [{names}]\n"


@pytest.mark.parametrize("target", ["nothing.example", "11.0.0.1"])
def test_scope_files(tmp_path: Path, target: str) -> None:
    def loaded(entries: int) -> Scope:
        path = tmp_path / f"{entries}.toml"
        path.write_text(scope(entries))
        return load_scope(path)

    assert loaded(4).problem is None
    check_growth(scope, lambda text: loaded(text.count(".example")), 8_000)
    check_growth(loaded, lambda read: read.refusal(target), 8_000)


CEDAR = {
    "policies": lambda n: "permit (principal, action, resource);\n" * (n // 38),
    "spaces": lambda n: "permit (principal, action, resource);" + " " * n,
    "comments": lambda n: "//\n" * (n // 3),
    "slashes": lambda n: "/" * n,
    "open-text": lambda n: '"' + "a" * n,
    "backslashes": lambda n: '"' + "\\" * n,
    "brackets": lambda n: "(" * n,
}


@pytest.mark.parametrize("name", CEDAR)
def test_policies_of_cedar(tmp_path: Path, name: str) -> None:
    def load(text: str) -> object:
        (tmp_path / "a.cedar").write_text(text)
        return cedar.load_policies(tmp_path)

    check_growth(CEDAR[name], load, cedar.MAX_BYTES)


HUNK = "@@ -1 +1 @@\n-a\n+b\n"
NAMES = "--- a\n+++ b\n"


@pytest.mark.slow
@each(
    ("lines", MIB, lambda n: many("x\n", n, NAMES), patch_names),
    ("names", MIB, lambda n: many("--- a\n", n), patch_names),
    ("git-headers", MIB, lambda n: many("diff --git a/x b/x\n", n), patch_names),
    ("header-lines", MIB, lambda n: many("index\n", n, "diff --git a/x b/x\n"), patch_names),
    ("hunks", MIB, lambda n: many(HUNK, n, NAMES), patch_names),
    ("fewer-hunks", 200_000, lambda n: many(HUNK, n, NAMES), patch_names),
    ("one-hunk", MIB, lambda n: many("-a\n", n, f"{NAMES}@@ -1,{n} +0,0 @@\n"), patch_names),
    ("marks", MIB, lambda n: many("-a\n\\\n", n, f"{NAMES}@@ -1,{n} +0,0 @@\n"), patch_names),
    ("quoted", MIB, lambda n: many("\\303", n, '--- "', '"\n+++ b\n'), patch_names),
    ("unquoted", MIB, lambda n: many("\\", n, '--- "', "\n+++ b\n"), patch_names),
)
def test_patches(limit: int, make: Make, read: Read) -> None:
    check_aside(make, read, limit, part=4)


@pytest.mark.slow
@each(
    ("nested", 1000, lambda n: many("(", n // 16), Pattern),
    ("classes", 1000, lambda n: many("[a-z]", n), Pattern),
    ("counts", 1000, lambda n: many("(a{9})", n), Pattern),
    ("wide", 1000, lambda n: many("a|", n), Pattern),
)
def test_search_patterns(limit: int, make: Make, read: Read) -> None:
    check_on_loop(make, read, limit)
