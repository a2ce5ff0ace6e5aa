"""A server of git repositories over HTTP, which wants a password."""

import asyncio
import base64
import os
import subprocess
from pathlib import Path

from aiohttp import web


class GitServer:
    """Serves the bare repositories of a directory with the host's `git http-backend`."""

    def __init__(self, repositories: Path, token: str) -> None:
        self._repositories = repositories
        self._token = token
        # The users who had the right password, and the header fields that were wrong.
        self.users: list[str] = []
        self.refused: list[str] = []
        self.port = 0
        self.app = web.Application(client_max_size=2**26)
        self.app.router.add_route("*", "/{path:.*}", self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        user, _, password = _decoded(authorization).partition(":")
        if password != self._token:
            self.refused.append(authorization)
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Basic realm="test"'})
        self.users.append(user)
        process = await asyncio.create_subprocess_exec(
            *("git", "http-backend"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environment(request, user),
        )
        printed, _ = await process.communicate(await request.read())
        return _answer(printed)

    def _environment(self, request: web.Request, user: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": user,
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": "",  # aiohttp has decoded the body
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }


def _decoded(authorization: str) -> str:
    kind, _, pair = authorization.partition(" ")
    return base64.b64decode(pair).decode() if kind == "Basic" else ""


def _answer(printed: bytes) -> web.Response:
    """The answer that a CGI program printed."""
    head, _, body = printed.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    status = int(fields.pop("Status", "200").split()[0])
    return web.Response(status=status, headers=fields, body=body)


def make_repository(directory: Path, name: str) -> Path:
    """A bare repository `NAME.git` that has a branch `main`, a branch `other` and three commits."""
    work, bare = directory / f"{name}-work", directory / f"{name}.git"

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", *named, *arguments], check=True, capture_output=True)

    git("init", "-q", "-b", "main", str(work))
    for number in range(3):
        (work / "greeting.txt").write_text(f"hello {number}\n")
        git("-C", str(work), "add", "--all")
        git("-C", str(work), "commit", "-q", "-m", f"greeting {number}")
    git("-C", str(work), "branch", "other", "HEAD~1")
    git("clone", "-q", "--bare", str(work), str(bare))
    return bare
