"""A registry with one image that the engine has already: a pull fetches only its manifest."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


@contextmanager
def registry(image: dict[str, Any]) -> Iterator[str]:
    """Its address, at which every name and tag but `absent` is that image of the engine's."""
    layers = [
        {"mediaType": _LAYER, "size": 1, "digest": each} for each in image["RootFS"]["Layers"]
    ]
    config = {"mediaType": _CONFIG, "size": 1, "digest": image["Id"]}
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": layers}
    data = json.dumps(manifest).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = "/manifests/" in self.path and "absent" not in self.path
            known = found or self.path == "/v2/"
            body = data if found else b"{}"
            self.send_response(200 if known else 404)
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", _MANIFEST if found else "application/json")
            self.send_header("Content-Length", str(len(body)))
            if found:
                digest = hashlib.sha256(data).hexdigest()
                self.send_header("Docker-Content-Digest", f"sha256:{digest}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
