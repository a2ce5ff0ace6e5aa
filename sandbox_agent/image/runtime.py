"""Adds an interpreter to a copy of the agent's code, so that it runs in any image.

This runs once in a container of an image that has Python. The copy gets a loader and a C library of
its own, so it does not matter which ones the other images have.
"""

import hashlib
import os
import py_compile
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

from sandbox_agent.decide.mounted_agent import COPY, PLACE
from sandbox_agent.enforce.libraries import default_directories, elf_needs

# Packages of Debian and parts of the standard library that the agent never uses.
_UNUSED = {"dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter"}
_CONFIGURATION = "config-"  # a static library of the interpreter, with which programs are built
_CODE = "sandbox_agent"
_START = "__main__.py"
# The sources of the compiled guard, and where an image may have the program that was made of them.
_GUARD = f"{_CODE}/enforce/guards/guard"
_COMPILED = "/opt/paddock/guard-"


def main(target: str = COPY) -> None:
    """Completes the directory, which has the agent's code.

    Raises: OSError; LookupError if a library is missing; PyCompileError for code that is no Python.
    """
    top = Path(target)
    (top / "bin").mkdir()
    library = top / "lib"
    standard = Path(os.__file__).parent
    modules = library / standard.name
    shutil.copytree(standard, modules, ignore=_ignored)
    interpreter = top / "bin" / "python3"
    shutil.copy2(os.path.realpath(sys.executable), interpreter)
    extensions = sorted((modules / "lib-dynload").glob("*.so"))
    _copy_libraries([interpreter, *extensions], library)
    shutil.copy2(top / _CODE / _START, top / _START)
    _copy_guard(top)
    _compile(top)
    for path in (top, *top.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    os.sync()  # once its name is known, its files are complete also after a loss of power


def _copy_guard(top: Path) -> None:
    """Copies the compiled guard; without it, or with one of another version, Python does its work.

    Raises: OSError.
    """
    sources = b"".join(path.read_bytes() for path in sorted((top / _GUARD).iterdir()))
    made = f"{_COMPILED}{hashlib.sha256(sources).hexdigest()}"
    if os.path.isfile(made):
        shutil.copy2(made, top / "bin" / "guard")


def _ignored(directory: str, names: list[str]) -> set[str]:
    """What is not copied; a link leads to a file of the image."""
    links = {name for name in names if os.path.islink(os.path.join(directory, name))}
    built = {name for name in names if name.startswith(_CONFIGURATION)}
    return links | built | _UNUSED.intersection(names)


def _compile(top: Path) -> None:
    """Compiles the agent's code. It never changes there, so it is not compared with its source."""
    mode = PycInvalidationMode.UNCHECKED_HASH
    for path in (top / _START, *(top / _CODE).rglob("*.py")):
        name = f"{PLACE}/{path.relative_to(top)}"
        py_compile.compile(str(path), dfile=name, doraise=True, invalidation_mode=mode)


def _copy_libraries(programs: list[Path], library: Path) -> None:
    """Copies the loader and the libraries that these files need, under the names they ask for."""
    directories = [each for each in default_directories() if "glibc-hwcaps" not in each]
    # The C library loads this one by itself, when a thread ends.
    waiting = [*programs, _copied("libgcc_s.so.1", directories, library)]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        with path.open("rb") as file:
            needs = elf_needs(file.fileno(), str(path.parent))
        if needs.loader is not None:
            shutil.copy2(os.path.realpath(needs.loader), library / "loader")
        for name in needs.libraries:
            if name not in seen:
                seen.add(name)
                waiting.append(_copied(name, directories, library))


def _copied(name: str, directories: list[str], library: Path) -> Path:
    for directory in directories:
        found = os.path.realpath(f"{directory}/{name}")
        if os.path.isfile(found):
            shutil.copy2(found, library / name)
            return library / name
    raise LookupError(f"there is no library {name}")
