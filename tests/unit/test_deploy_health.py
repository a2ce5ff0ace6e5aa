"""What a Swarm takes for healthy: ready once, then alive."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from deploy.health import check


@contextmanager
def task(answers: dict[str, int]) -> Iterator[str]:
    """A task's server, which answers paths with these statuses; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers[self.path])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_it_must_be_ready_once_and_then_only_be_alive(tmp_path: Path) -> None:
    seen, answers = tmp_path / "seen", {"/readyz": 503, "/healthz": 200}
    with task(answers) as url:
        with pytest.raises(HTTPError):
            check(url, seen)
        answers["/readyz"] = 200
        check(url, seen)
        answers["/readyz"] = 503
        check(url, seen)
        answers["/healthz"] = 500
        with pytest.raises(HTTPError):
            check(url, seen)
    with pytest.raises(URLError):
        check(url, seen)
