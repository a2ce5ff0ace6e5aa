"""A package index, an npm registry and a git server, as package managers expect them."""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

from aiohttp import web

INDEX, NPM, GIT = "index.example", "npm.example", "git.example"
# The hosts of the recipes in the documents, which the tests serve themselves.
PUBLIC = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org"),
    *("github.com", "api.openai.com"),
)
_METADATA = "Metadata-Version: 2.1\nName: greet\nVersion: 1\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_FILE = "greet-1-py3-none-any.whl"
_OF_AN_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


def wheel() -> bytes:
    """A Python package whose command prints a greeting."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("greet.py", "def main():\n    print('hello')\n")
        archive.writestr("greet-1.dist-info/METADATA", _METADATA)
        archive.writestr("greet-1.dist-info/WHEEL", _WHEEL)
        archive.writestr(
            "greet-1.dist-info/entry_points.txt", "[console_scripts]\ngreet = greet:main\n"
        )
        archive.writestr("greet-1.dist-info/RECORD", "")
    return made.getvalue()


def repacked(project: str) -> tuple[str, bytes]:
    """The name and the content of a wheel of a pure package that the tests' interpreter has."""
    found = metadata.distribution(project)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path in found.files or ():
            left_out = path.suffix == ".pyc" or path.name in _OF_AN_INSTALLATION
            if path.parts[0] != ".." and not left_out:
                archive.writestr(str(path), path.read_binary())
            if path.name == "METADATA":
                archive.writestr(str(path.with_name("RECORD")), "")
    return f"{project}-{found.version}-py3-none-any.whl", made.getvalue()


def npm_package() -> bytes:
    """A package of npm that exports a greeting."""
    made = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": "greet", "version": "1.0.0"}),
        "package/index.js": "module.exports = 'hello';\n",
    }
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def repository(directory: Path) -> Path:
    """A bare repository with one commit, for git's plain HTTP."""
    work, bare = directory / "work", directory / "greet.git"
    name = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for arguments in (
        ("init", "-q", str(work)),
        ("-C", str(work), *name, "commit", "-q", "--allow-empty", "-m", "greeting"),
        ("clone", "-q", "--bare", str(work), str(bare)),
        ("-C", str(bare), "update-server-info"),
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    return bare


class Packages:
    """All on one port, told apart by the requested host. What is posted is kept."""

    def __init__(self, repositories: Path, *more: str) -> None:
        """`more` are Python packages in the index besides `greet`: the tests' own."""
        self._repositories = repositories
        self._wheels = {"greet": (_FILE, wheel()), **{name: repacked(name) for name in more}}
        # Made once: a compressed archive says the second in which it was made.
        self._npm_package = npm_package()
        self.posted: list[bytes] = []
        self.authorizations: list[str | None] = []
        self.port = 0
        self.app = web.Application()
        self.app.router.add_get("/simple/{project}/", self._listed)
        self.app.router.add_get("/files/{name}", self._wheel)
        self.app.router.add_get("/greet", self._described)
        self.app.router.add_get("/greet/-/greet-1.0.0.tgz", self._tarball)
        self.app.router.add_post("/{path:.*}", self._post)
        self.app.router.add_static("/git/", repositories)
        self.app.router.add_static("/our-team/", repositories)

    async def _listed(self, request: web.Request) -> web.Response:
        if request.match_info["project"] not in self._wheels:
            raise web.HTTPNotFound
        name, _ = self._wheels[request.match_info["project"]]
        files = "https://files.pythonhosted.org" if request.host == "pypi.org" else ""
        link = f'<a href="{files}/files/{name}">{name}</a>'
        return web.Response(text=link, content_type="text/html")

    async def _wheel(self, request: web.Request) -> web.Response:
        return web.Response(body=dict(self._wheels.values())[request.match_info["name"]])

    async def _described(self, request: web.Request) -> web.Response:
        digest = base64.b64encode(hashlib.sha512(self._npm_package).digest()).decode()
        dist = {
            "tarball": f"https://{request.host}/greet/-/greet-1.0.0.tgz",
            "integrity": f"sha512-{digest}",
        }
        version = {"name": "greet", "version": "1.0.0", "dist": dist}
        tags = {"latest": "1.0.0"}
        return web.json_response(
            {"name": "greet", "dist-tags": tags, "versions": {"1.0.0": version}}
        )

    async def _tarball(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._npm_package)

    async def _post(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        self.posted.append(await request.read())
        return web.json_response({})
