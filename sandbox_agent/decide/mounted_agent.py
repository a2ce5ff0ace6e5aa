"""The agent as it is mounted in every container, with an interpreter of its own. Pure."""

# Where the agent is mounted.
PLACE = "/opt/paddock"
# The guard in C, in that place; an image that was built without a compiler has none.
GUARD_PROGRAM = "bin/guard"
_LIBRARIES = f"{PLACE}/lib"
# The words that start the mounted interpreter, before its own arguments. Its loader and its
# C library are its own, so it does not matter which ones the image has.
PYTHON = (
    f"{_LIBRARIES}/loader",
    *("--inhibit-cache", "--library-path", _LIBRARIES),
    *(f"{PLACE}/bin/python3", "-I", "-S", "-X", "utf8"),
)
AGENT = (*PYTHON, PLACE)
# With another locale, its C library would read files of the image. Its OpenSSL would read a file
# there that can name libraries, whose code would be the agent's. The others are for what an
# operator starts in the container by the engine: the agent finds programs by a path of its own, and
# a shell of root must not read a home that may be a session's workspace.
ENVIRONMENT = {
    "HOME": "/",
    "LC_ALL": "C",
    "OPENSSL_CONF": "/dev/null",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
# Where a container that adds the interpreter finds the agent's code.
COPY = "/runtime"

# What a trial of root inside prints if it works.
ROOT_INSIDE = "root inside"


def script(module: str, *arguments: str, place: str = PLACE) -> tuple[str, ...]:
    """The interpreter's arguments that run the function `main` of one of the agent's modules."""
    code = (
        f"import sys; sys.path.insert(0, {place!r}); from {module} import main; main(*sys.argv[1:])"
    )
    return ("-c", code, *arguments)
