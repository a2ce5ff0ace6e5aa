"""What the script that starts the control plane says of one that is not ready."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from orchestrator.settings.settings import Settings
from scripts import service
from scripts.service import what_is_missing
from tests.support.limits import WAIT_SECONDS

CHECKS: dict[str, Any] = {
    "engine": {"ok": True, "status": "ok", "detail": "version 20.10", "remedy": None},
    "image": {"ok": False, "status": "failure", "detail": "no answer within 5 s", "remedy": "x"},
}


class Unready(BaseHTTPRequestHandler):
    """Answers as `/readyz` does, with what the test has set."""

    told: tuple[int, bytes] = (200, b"")

    def do_GET(self) -> None:
        self.send_response(self.told[0])
        self.end_headers()
        self.wfile.write(self.told[1])

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Unready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(WAIT_SECONDS)


def test_the_check_that_fails_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unready, "told", (200, b"{}"))
    assert what_is_missing(url) is None
    for answer, said in (
        (json.dumps({"status": "unready", "checks": CHECKS}), "image: no answer within 5 s"),
        ("[]", "status 503"),
        ("no JSON", "status 503"),
    ):
        monkeypatch.setattr(Unready, "told", (503, answer.encode()))
        assert what_is_missing(url) == said


def test_one_that_does_not_answer_is_told_so() -> None:
    assert what_is_missing("http://127.0.0.1:0") == "it does not listen yet"
    assert (what_is_missing("http://127.0.0.1:1") or "").startswith("it does not answer: ")


def test_a_start_that_takes_long_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "COMMAND", [sys.executable, "-c", "import time; time.sleep(600)"])
    started: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*arguments, **options))
        return started[0]

    # The script leaves its process behind; a test may not.
    monkeypatch.setattr(
        service, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": popen})
    )
    monkeypatch.setattr(service, "SLOW_SECONDS", 0)
    monkeypatch.setattr(service, "READY_SECONDS", 1)
    settings = Settings(listen="127.0.0.1:0", state_dir=tmp_path / "state")
    with pytest.raises(service.ServiceError, match="not ready after 1 s"):
        service.start(settings)
    assert capsys.readouterr().out.count("it takes long to start (it does not listen yet)") == 1
    assert service.stop(settings)
    started[0].wait(WAIT_SECONDS)


def test_an_end_that_takes_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            raise psutil.TimeoutExpired(seconds)

    process = SimpleNamespace(pid=7, terminate=lambda: None, wait=wait)
    monkeypatch.setattr(service, "_running", lambda _settings: process)
    assert service.stop(Settings(listen="127.0.0.1:0", state_dir=tmp_path / "state"))
    assert "it takes long to end" in capsys.readouterr().out
    assert waits == [service.SLOW_SECONDS, service.STOP_SECONDS - service.SLOW_SECONDS]
