"""Copies what the agent needs to run in an image that has no Python.

It runs in an image of Paddock's. The copy has an interpreter with a loader and a C library of its
own, so it does not matter which ones the other image has.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from sandbox_agent.decide.mounted_agent import COPY
from sandbox_agent.enforce.libraries import default_directories, elf_needs

# Packages of Debian and parts of the standard library that the agent never uses.
_UNUSED = {"dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter"}
_BASELINE = "baseline.toml"


def main(target: str = COPY) -> None:
    """Fills the empty directory. Raises: OSError; LookupError if a library is missing."""
    top, agent = Path(target), Path(__file__).parents[2]
    (top / "bin").mkdir()
    library = top / "lib"
    standard = Path(os.__file__).parent
    modules = library / standard.name
    shutil.copytree(standard, modules, ignore=_ignored)
    interpreter = top / "bin" / "python3"
    shutil.copy2(os.path.realpath(sys.executable), interpreter)
    for package in (agent / "sandbox_agent", agent / "__main__.py"):
        (shutil.copytree if package.is_dir() else shutil.copy2)(package, top / package.name)
    (top / _BASELINE).write_text(_baseline(agent / _BASELINE), encoding="utf-8")
    extensions = sorted((modules / "lib-dynload").glob("*.so"))
    _copy_libraries([interpreter, *extensions], library)
    for path in (top, *top.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    os.sync()  # once its name is known, its files are complete also after a loss of power


def _ignored(directory: str, names: list[str]) -> set[str]:
    """What is not copied; a link leads to a file of the image."""
    links = {name for name in names if os.path.islink(os.path.join(directory, name))}
    return links | _UNUSED.intersection(names)


def _baseline(packaged: Path) -> str:
    """What programs look for in vain. The agent's own files are no program's, so none is read."""
    import tomllib

    found = {**tomllib.loads(packaged.read_text(encoding="utf-8")), "read": []}
    return "".join(f"{name} = {json.dumps(paths)}\n" for name, paths in found.items())


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
