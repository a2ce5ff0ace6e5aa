"""The agent that is mounted in containers of images that have none. Pure."""

# Where an image of Paddock's has its agent, and where the mounted one is.
PLACE = "/opt/paddock"
_LIBRARIES = f"{PLACE}/lib"
# The words that start the mounted interpreter, before its own arguments. Its loader and its
# C library are its own, so it does not matter which ones the image has.
PYTHON = (
    f"{_LIBRARIES}/loader",
    *("--inhibit-cache", "--library-path", _LIBRARIES),
    *(f"{PLACE}/bin/python3", "-I", "-S", "-X", "utf8"),
)
AGENT = (*PYTHON, PLACE)
# With another value, its C library would read the image's files of locales.
ENVIRONMENT = {"LC_ALL": "C"}
# Where a container that copies the agent out of an image finds the empty directory.
COPY = "/runtime"


def script(module: str, *arguments: str) -> tuple[str, ...]:
    """The interpreter's arguments that run the function `main` of one of the agent's modules."""
    code = (
        f"import sys; sys.path.insert(0, {PLACE!r}); from {module} import main; main(*sys.argv[1:])"
    )
    return ("-c", code, *arguments)
