"""The runner of stock systems, without QEMU: command lines, disks' files, results, the table."""

import io
import itertools
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from scripts import docs
from scripts.hosts import __main__ as runner
from scripts.hosts import disks, job, machine, mirror, results, suite
from scripts.hosts.__main__ import parse, plan
from scripts.hosts.machine import Machine
from scripts.hosts.results import Result
from scripts.hosts.systems import SYSTEMS
from scripts.hosts.telling import Teller
from tests.support.limits import WAIT_SECONDS
from tests.support.sources import ROOT, source

MIRRORS = ("deb.example", "security.example:8080")
BOOTED = Machine(
    Path("/c/kernel"), Path("/c/initrd"), Path("/c/a,b.disk"), Path("/c/p.disk"), Path("/c/log")
)
TEST = "tests/integration/test_quota.py::test_the_limit_is_hard"
DOCTOR = {
    "kind": "doctor",
    "status": 1,
    "checks": [
        {"name": "engine", "status": "ok", "detail": "version 20.10, cgroup 2"},
        {"name": "landlock", "status": "warning", "detail": "Landlock 2, kernel 6.1"},
        {"name": "level high", "status": "failure", "detail": "needs Landlock version 6"},
    ],
}
LINES = [
    {"kind": "facts", "system": "Debian 12", "kernel": "6.1.0", "python": "3.11", "uptime": "54"},
    {"kind": "step", "name": "make run", "status": 0, "seconds": 700},
    DOCTOR,
    {"kind": "test", "id": f"{TEST}[sparse]", "outcome": "passed", "seconds": 2.5},
    {"kind": "test", "id": f"{TEST}[truncate]", "outcome": "failed", "seconds": 1.0},
    {"kind": "end"},
]


def told(*lines: object) -> Result:
    result = Result("Debian 12", "today")
    for line in lines:
        result.take(json.dumps(line) + "\r\n")
    return result


def option(arguments: list[str], name: str) -> list[str]:
    return [value for key, value in itertools.pairwise(arguments) if key == name]


def test_the_guest_reaches_its_proxy_and_nothing_else() -> None:
    arguments = machine.command(BOOTED, MIRRORS, kvm=False)
    (network,) = option(arguments, "-netdev")
    settings, _, proxy = network.partition(",guestfwd=")
    assert settings == "user,id=net,restrict=on"
    place, _, command = proxy.partition("-cmd:")
    assert place == "tcp:10.0.2.100:3128"
    assert shlex.split(command)[2:] == [str(ROOT / "scripts/hosts/mirror.py"), *MIRRORS]


def test_results_come_by_the_second_port_and_a_restart_ends_the_run() -> None:
    arguments = machine.command(BOOTED, MIRRORS, kvm=False)
    system, project = option(arguments, "-drive")
    assert system.startswith("file=/c/a,,b.disk,")
    assert project.startswith("file=/c/p.disk,")
    assert "snapshot" not in system + project  # what is written is there after a restart
    assert option(arguments, "-serial") == ["chardev:console", "stdio"]
    assert option(arguments, "-chardev") == ["file,id=console,append=on,path=/c/log"]
    assert "-no-reboot" in arguments
    assert job.RESULTS == "/dev/ttyS1"


def test_a_stock_disk_is_copied_with_its_holes(tmp_path: Path) -> None:
    disk, used = tmp_path / "a.disk", tmp_path / "used.disk"
    with disk.open("wb") as file:
        file.truncate(2**30)
        file.write(b"boot")
    disks.copy(disk, used)
    assert used.stat().st_size == 2**30
    assert used.stat().st_blocks * 512 < 2**20
    with used.open("rb") as file:
        assert file.read(4) == b"boot"
    with pytest.raises(disks.DiskError):
        disks.copy(tmp_path / "none", used)


@pytest.mark.parametrize(
    ("announced", "boots"), [((False,), 1), ((True, False), 2), ((True, True, False), 3)]
)
def test_a_machine_is_booted_again_only_where_its_job_announced_it(
    announced: tuple[bool, ...], boots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(announced)

    @contextmanager
    def running(_arguments: list[str], _seconds: float) -> Iterator[Iterator[str]]:
        yield iter(['{"kind": "restart"}'] if left.pop(0) else ["a panic"])

    monkeypatch.setattr(machine, "running", running)
    result = Result("Debian 12")
    runner._run(BOOTED, result, MIRRORS, WAIT_SECONDS)
    assert (left, result.restarts) == ([], boots - 1)


def test_kvm_is_used_where_the_processor_runs_other_kernels(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    assert not machine.has_kvm("flags\t\t: fpu svm\n", device)
    device.touch()
    for line, found in (
        ("flags\t\t: fpu vmx\n", True),
        ("flags\t\t: fpu svm\n", True),
        ("flags\t\t: fpu vmx_not svm2\n", False),
        ("vmx flags\t: ept\n", False),
    ):
        assert machine.has_kvm(line, device) == found, line
    for kvm, accelerator in ((True, "kvm"), (False, "tcg,thread=multi")):
        arguments = machine.command(BOOTED, MIRRORS, kvm=kvm)
        assert option(arguments, "-accel") == [accelerator]


def test_lines_of_a_machine_come_until_it_ends_or_its_time_is_over() -> None:
    with machine.running(["sh", "-c", "echo one; echo two"], WAIT_SECONDS) as lines:
        assert list(lines) == ["one\n", "two\n"]
    with machine.running(["sh", "-c", "echo one; exec sleep 600"], 0.5) as lines:
        assert list(lines) == ["one\n"]


def test_a_tree_gets_a_network_its_proxy_and_the_job(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").symlink_to("/etc/resolv.conf")
    disks.configure(tmp_path)
    assert (tmp_path / "etc/resolv.conf").read_text().startswith("nameserver 10.0.2.3")
    assert "http://10.0.2.100:3128" in (tmp_path / "etc/apt/apt.conf.d/90proxy").read_text()
    unit = (tmp_path / "etc/systemd/system/job.service").read_text()
    assert "-m scripts.hosts.job" in unit
    assert unit.count("poweroff-force") == 2  # the machine ends however the job ends
    wanted = tmp_path / "etc/systemd/system/graphical.target.wants/job.service"
    assert wanted.readlink() == Path("/etc/systemd/system/job.service")


def test_a_program_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    archive, said = tmp_path / "none.tar", list[str]()
    with pytest.raises(disks.DiskError, match="tar ended with exit status 2"):
        disks.system_disk(tmp_path, archive, said.append)
    assert not list(tmp_path.iterdir())  # neither a tree nor a disk


@pytest.mark.slow
def test_the_project_is_copied_without_what_git_ignores(tmp_path: Path) -> None:
    disks.copy_project(tmp_path)
    assert (tmp_path / "scripts/hosts/job.py").read_bytes() == Path(job.__file__).read_bytes()
    assert (tmp_path / "scripts/engine.sh").stat().st_mode & 0o111
    assert not {".venv", ".git", "data"} & {path.name for path in tmp_path.iterdir()}


def test_mirrors_are_the_hosts_of_the_sources() -> None:
    for system in SYSTEMS.values():
        sources = system.sources("http://deb.example/debian", "http://security.example:8080/x")
        assert disks.mirrors(sources) == MIRRORS
        assert sources[0] == f"deb http://deb.example/debian {system.suite} main"


def test_what_runs_before_anything_is_installed_needs_the_standard_library_only() -> None:
    for name in ("job", "mirror", "__init__"):
        imports = source(ROOT / f"scripts/hosts/{name}.py").imports
        assert not [each for each in imports if each.startswith(("scripts", "images", "docker"))]


def test_every_listed_test_is_there_once_and_the_short_form_is_a_third() -> None:
    every = suite.named(short=False)
    assert len(set(every)) == len(every)
    for test in every:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert f"def {name}(" in text or f"    {name},\n" in text, test
    short = suite.named(short=True)
    assert set(short) < set(every)
    assert len(every) / 4 < len(short) < len(every) / 2.5
    assert suite.topic_of(f"{TEST}[x]") == "quotas and limits"
    assert suite.topic_of("tests/x.py::test_y") is None


def test_results_are_read_and_judged() -> None:
    result = told(*LINES)
    assert result.complete
    assert result.facts["kernel"] == "6.1.0"
    assert result.steps == {"make run": 0}
    assert result.faults() == [
        "doctor: level high: needs Landlock version 6",
        f"{TEST}[truncate]: failed",
    ]
    assert told(*LINES[:2]).faults() == [
        "the job did not come to its end",
        "the doctor said nothing",
    ]
    failed = told({"kind": "step", "name": "make run", "status": 2, "seconds": 1}, LINES[-1])
    assert "make run: exit status 2" in failed.faults()
    well = {"kind": "doctor", "checks": DOCTOR["checks"][:2]}  # type: ignore[index]
    assert told(LINES[1], well, LINES[3], LINES[-1]).faults() == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[   12.3] soft lockup",
        "{",
        "[]",
        '{"kind": "step"}',
        '{"kind": "doctor", "checks": [1]}',
        '{"kind": "test", "id": "tests/x.py::test_y", "outcome": "passed"}',
    ],
)
def test_what_is_no_result_is_passed_over(line: str) -> None:
    result = Result("Debian 12")
    assert result.take(line) is None
    assert result == Result("Debian 12")


def test_the_table_has_a_column_for_each_system() -> None:
    rows = results.table([told(*LINES), Result("Debian 13")])
    said = {row[0]: row[1:] for row in rows}
    assert rows[0] == ["", "Debian 12", "Debian 13"]
    assert said["run"] == ["today", "?"]
    assert results.table([told(*LINES[:-1])])[1] == ["run", "today, cut short"]
    assert said["kernel"] == ["6.1.0", "?"]
    assert said["engine"] == ["version 20.10, cgroup 2", "?"]
    assert said["`make run`"] == ["well", "?"]
    assert said["`paddock doctor`"] == ["refuses level high", "?"]
    assert said["reboot"] == ["?", "?"]
    assert said["quotas and limits"] == ["1 of 2", "?"]
    assert said["backup"] == ["?", "?"]
    assert "quotas and limits  1 of 2" in results.shown(rows)


def test_the_job_tries_everything_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs are stand-ins: `make run` fails, and the doctor finds a fault."""
    programs, told_in = tmp_path / ".venv/bin", tmp_path / "told"
    programs.mkdir(parents=True)
    for name, script in {
        "make": f'[ "$1" != run ] || [ "$XDG_CACHE_HOME" != {tmp_path / job.CACHE} ]',
        "python": f'[ "$2" != pytest ] || echo "$PADDOCK_HELLO_TIMEOUT s $@" >{tmp_path}/tests',
        "paddock": f"echo '{json.dumps({'checks': DOCTOR['checks']})}'; exit 1",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "job.json").write_text('{"tests": ["a", "b"], "restart": true}')
    sysrq = tmp_path / "sysrq"
    monkeypatch.setattr(job, "_SYSRQ", str(sysrq))
    (tmp_path / "base.tar").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(job, "RESULTS", str(told_in))
    job.main()
    result = told(*map(json.loads, told_in.read_text().splitlines()))
    assert list(result.steps.items()) == [
        ("make engine", 0),
        ("load the base image", 0),
        ("make run", 1),
        ("make stop", 0),
        ("tests", 0),
        ("start before the restart", 0),
        ("sessions before the restart", 0),
    ]
    assert (result.restarts, sysrq.read_text()) == (1, "b")
    assert result.complete
    assert result.checks["level high"][0] == "failure"
    asked = (tmp_path / "tests").read_text()
    assert asked.startswith("300 s ")
    assert asked.endswith(" -p no:cacheprovider a b\n")

    # After the boot, nothing is set up again.
    (tmp_path / job.RESTARTED).touch()
    told_in.unlink()
    job.main()
    again = told(*map(json.loads, told_in.read_text().splitlines()))
    assert list(again.steps) == [
        "start after the restart",
        "sessions after the restart",
        "stop after the restart",
    ]
    assert again.complete


def test_results_are_kept_for_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "EXAMINED", tmp_path / "hosts.json")
    monkeypatch.setattr(docs, "_write_parts", lambda: None)
    docs.keep_hosts({"debian-12": told(*LINES)})
    docs.keep_hosts({"debian-13": Result("Debian 13")})
    kept = results.load(tmp_path / "hosts.json")
    assert kept == {"debian-12": told(*LINES), "debian-13": Result("Debian 13")}
    assert "| quotas and limits | 1 of 2 | ? |" in docs.hosts()


def test_topics_that_are_run_alone_are_added() -> None:
    arguments = ["--topic", "rates", "--topic", "backup"]
    chosen = suite.named(short=False, topics=("rates", "backup"))
    assert {suite.topic_of(test) for test in chosen} == {"rates", "backup"}
    assert plan(parse(arguments)) == {"tests": chosen, "restart": True}
    (backup,) = [test for test in chosen if suite.topic_of(test) == "backup"]
    again = Result("Debian 12", "later", tests={backup: "passed"}, complete=True)
    found = {"debian-12": again, "debian-13": Result("Debian 13")}
    kept = results.kept({"debian-12": told(*LINES)}, found, add=True)
    assert kept["debian-12"].run == "later; before: today"
    assert kept["debian-12"].tests == told(*LINES).tests | {backup: "passed"}
    assert kept["debian-13"] == Result("Debian 13")
    assert results.kept({"debian-12": told(*LINES)}, found, add=False)["debian-12"] == again
    # Of a run that was cut short, the tests are added, and nothing else.
    again.complete, again.steps = False, {"make run": 2}
    cut = results.kept({"debian-12": told(*LINES)}, found, add=True)["debian-12"]
    assert cut.steps == told(*LINES).steps
    assert cut.tests == kept["debian-12"].tests
    assert "debian-12" not in results.kept({"debian-12": told(*LINES)}, found, add=False)


def test_the_options_name_known_systems_and_keep_what_they_make_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    options = parse(["--system", "debian-12", "--short"])
    assert options.system == ["debian-12"]
    assert options.cache == Path("/c/paddock/hosts")
    assert plan(options) == {"tests": suite.named(short=True), "restart": True}
    assert plan(parse(["--test", "a"])) == {"tests": ["a"], "restart": False}
    assert plan(parse(["--restart"])) == {"tests": [], "restart": True}
    with pytest.raises(SystemExit):
        parse(["--system", "plan-9"])


class Package(BaseHTTPRequestHandler):
    """A mirror with one package, that answers with what was asked for."""

    def do_GET(self) -> None:
        content = f"{self.path} {self.headers.get('Range')}".encode()
        self.send_response(200 if self.path == "/debian/x.deb" else 404)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Set-Cookie", "a=b")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def package() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Package) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(WAIT_SECONDS)


def asked(request: str, *mirrors: str, proxy: str | None = None) -> str:
    out = io.BytesIO()
    mirror.serve(io.BytesIO(request.encode()), out, mirrors, proxy)
    return out.getvalue().decode()


def test_a_package_comes_from_its_mirror(package: str) -> None:
    url = f"http://{package}/debian/x.deb"
    request = f"GET {url} HTTP/1.1\r\nRange: bytes=0-\r\nCookie: c\r\n\r\n"
    answer = asked(request, package)
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("\r\n\r\n/debian/x.deb bytes=0-")
    assert "Cookie" not in answer
    assert "Connection: close" in answer
    assert asked(f"GET {url}2 HTTP/1.1\r\n\r\n", package).startswith("HTTP/1.1 404 ")
    # The host's own proxy is asked with the whole address.
    answer = asked(
        "GET http://elsewhere/a HTTP/1.1\r\n\r\n", "elsewhere", proxy=f"http://{package}"
    )
    assert answer.endswith("http://elsewhere/a None")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET http://other.example/ HTTP/1.1", 403),
        ("GET https://deb.example/ HTTP/1.1", 403),
        ("GET http://deb.example@other.example/ HTTP/1.1", 403),
        ("GET http://deb.example:81/ HTTP/1.1", 403),
        ("GET /debian/ HTTP/1.1", 403),
        ("CONNECT deb.example:443 HTTP/1.1", 405),
        ("POST http://deb.example/ HTTP/1.1", 405),
        ("GET", 403),
        ("x" * 9000, 400),
    ],
)
def test_nothing_else_is_fetched(request_line: str, status: int) -> None:
    answer = asked(f"{request_line}\r\n\r\n", *MIRRORS)
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert answer.endswith("\r\n\r\n")


def test_a_cut_or_endless_head_is_refused() -> None:
    assert asked("GET http://deb.example/ HTTP/1.1", *MIRRORS).startswith("HTTP/1.1 400 ")
    assert asked("a: b\r\n" * 200, *MIRRORS).startswith("HTTP/1.1 400 ")


def test_a_mirror_that_does_not_answer_is_said() -> None:
    answer = asked("GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n", "127.0.0.1:1")
    assert answer.startswith("HTTP/1.1 502 ConnectionRefusedError")


def test_a_test_s_outcome_is_told_when_all_of_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "told"
    teller = Teller(str(path))
    for test, phases in {
        "a": [("setup", "passed"), ("call", "passed"), ("teardown", "passed")],
        "b": [("setup", "passed"), ("call", "failed"), ("teardown", "passed")],
        "c": [("setup", "failed"), ("teardown", "passed")],
        "d": [("setup", "passed"), ("call", "passed"), ("teardown", "failed")],
        "e": [("setup", "skipped"), ("teardown", "passed")],
    }.items():
        for when, outcome in phases:
            teller.pytest_runtest_logreport(report(test, when, outcome))
    said = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["id"], each["outcome"]) for each in said] == [
        ("a", "passed"),
        ("b", "failed"),
        ("c", "failed"),
        ("d", "failed"),
        ("e", "skipped"),
    ]
    assert [each["why"] for each in said] == ["", "it broke", "it broke", "it broke", "it broke"]


def report(test: str, when: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(
        test,
        (test, 0, test),
        {},
        outcome,  # type: ignore[arg-type]
        None if outcome == "passed" else "it broke",
        when,  # type: ignore[arg-type]
    )
