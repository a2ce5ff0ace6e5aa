"""A web server on the loopback: what curl could be made to write comes from somewhere."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT = 8080


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if "away" in self.path else 200)
        self.send_header("Location", "file:///canary/a.txt")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("ETag", '"x"')
        self.send_header("Content-Disposition", 'attachment; filename="/canary/new"')
        self.end_headers()
        self.wfile.write(b"answer\n")

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the names of the methods

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet."""


def serve_beside() -> None:
    """Serves from a process of its own, which ends with the container."""
    server = HTTPServer(("127.0.0.1", PORT), _Handler)
    if os.fork() == 0:
        server.serve_forever()
    server.server_close()
