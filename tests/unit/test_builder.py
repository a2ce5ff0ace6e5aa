"""The cases in which an image is built again."""

import re
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import base
from images.builder import context_archive, input_hash
from images.errors import BuildError
from images.programs import Programs
from images.recipes import (
    BASE_PACKAGES,
    CONTROL_PLANE,
    ROOT,
    SANDBOX,
    Recipe,
    context_files,
    default_recipe,
    find_recipe,
    recipes,
)
from images.site import platform_options
from orchestrator.host.engine.base import LABEL_IMAGE
from orchestrator.host.engine.image_names import RECIPES

FILES = st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=16), max_size=5)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the image's sources, without leftovers of the interpreter."""
    shutil.copytree(ROOT / "images" / "sandbox", tmp_path / "images" / "sandbox")
    shutil.copytree(
        ROOT / "sandbox_agent",
        tmp_path / "sandbox_agent",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return tmp_path


def _hash(root: Path, base_id: str = "sha256:1", recipe: Recipe = SANDBOX) -> str:
    return input_hash(context_files(root, recipe), base_id)


def test_hash_is_stable(repository: Path) -> None:
    before = _hash(repository)
    for path in repository.rglob("*"):
        path.touch()
    assert _hash(repository) == before


@pytest.mark.parametrize(
    "changed",
    [
        "images/sandbox/Dockerfile",
        "images/sandbox/packages",
        "images/sandbox/unused",
    ],
)
def test_hash_follows_every_input(repository: Path, changed: str) -> None:
    before = _hash(repository)
    with (repository / changed).open("a") as file:
        file.write("# changed\n")
    assert _hash(repository) != before


def test_hash_follows_new_removed_and_renamed_sources(repository: Path) -> None:
    def found() -> str:
        return _hash(repository, recipe=CONTROL_PLANE)

    seen = {found()}
    added = repository / "sandbox_agent" / "added.py"
    added.touch()
    seen.add(found())
    added.rename(added.with_name("renamed.py"))
    seen.add(found())
    (repository / "sandbox_agent" / "decide" / "protocol.py").unlink()
    seen.add(found())
    assert len(seen) == 4


def test_a_change_of_the_agent_needs_no_other_image(repository: Path) -> None:
    before = _hash(repository)
    for path in (repository / "sandbox_agent").rglob("*.py"):
        path.write_text("raise SystemExit\n")
    assert _hash(repository) == before


def test_hash_follows_the_base(repository: Path) -> None:
    assert _hash(repository, "sha256:1") != _hash(repository, "sha256:2")


def test_hash_ignores_what_is_not_a_source(repository: Path) -> None:
    before = _hash(repository, recipe=CONTROL_PLANE)
    cache = repository / "sandbox_agent" / "__pycache__"
    cache.mkdir()
    (cache / "protocol.cpython-311.pyc").write_bytes(b"compiled")
    (repository / "sandbox_agent" / ".protocol.py.swp").write_bytes(b"an editor's")
    assert _hash(repository, recipe=CONTROL_PLANE) == before


@given(FILES, FILES, st.text(max_size=4), st.text(max_size=4))
def test_only_equal_inputs_have_equal_hashes(
    left: dict[str, bytes], right: dict[str, bytes], left_base: str, right_base: str
) -> None:
    same = (left, left_base) == (right, right_base)
    assert (input_hash(left, left_base) == input_hash(right, right_base)) is same


def test_archive_holds_exactly_the_hashed_files() -> None:
    files = context_files()
    with tarfile.open(fileobj=context_archive(files)) as archive:
        found = {member.name: member for member in archive.getmembers()}
        assert found.keys() == files.keys()
        for name, member in found.items():
            content = archive.extractfile(member)
            assert content is not None
            assert content.read() == files[name]
            assert (member.uid, member.gid, member.mode, member.mtime) == (0, 0, 0o644, 0)


@pytest.mark.parametrize("recipe", [SANDBOX, CONTROL_PLANE], ids=["sandbox", "control-plane"])
def test_no_image_has_the_agents_text_for_auditors(recipe: Recipe) -> None:
    assert (ROOT / "sandbox_agent" / "README.md").exists()
    assert "sandbox_agent/README.md" not in context_files(recipe=recipe)


def test_control_plane_has_code_and_data_and_no_leftovers(tmp_path: Path) -> None:
    sources = {
        "images/control-plane/Dockerfile",
        "pyproject.toml",
        "paddock/contract/base.py",
        "paddock/py.typed",
        "requirements.lock",
        "api/app.py",
        "api/static/page.js",
        "orchestrator/rules/policy/levels/low.toml",
        "orchestrator/ground/store/migrations/0001_core.sql",
        "sandbox_agent/decide/protocol.py",
        "sandbox_agent/enforce/reads/baseline.toml",
        "images/recipes.py",
    }
    leftovers = {"api/__pycache__/app.cpython-311.pyc", "api/.app.py.swp", "tests/test.py", ".env"}
    for name in sources | leftovers:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert context_files(tmp_path, CONTROL_PLANE).keys() == sources


def test_no_client_can_name_the_control_plane_as_a_sandbox() -> None:
    assert LABEL_IMAGE in SANDBOX.labels
    assert LABEL_IMAGE not in CONTROL_PLANE.labels


def test_wheels_are_for_the_engines_machine() -> None:
    options = platform_options("arm64")
    assert options[0] == "--platform=manylinux_2_36_aarch64"
    assert "--platform=manylinux2014_aarch64" in options
    with pytest.raises(BuildError, match="riscv64"):
        platform_options("riscv64")


def test_local_base_is_named_by_its_content() -> None:
    names = {
        base.local_name(b"git\n", b"/usr/share/doc/*\n"),
        base.local_name(b"git\ncurl\n", b"/usr/share/doc/*\n"),
        base.local_name(b"git\n", b""),
    }
    assert len(names) == 3
    assert base.local_name(b"git\n", b"") in names


def test_mirrors_and_proxies_do_not_get_into_the_base() -> None:
    command = base.mmdebstrap_command(
        Path("base.tar"),
        ["git", "curl"],
        ["/usr/share/doc/*"],
        "bookworm",
        ["/etc/apt/sources.list"],
        ['Acquire::http::Proxy "http://proxy:3142";'],
    )
    assert "--include=git,curl" in command
    assert "--dpkgopt=path-exclude=/usr/share/doc/*" in command
    assert '--aptopt=Acquire::http::Proxy "http://proxy:3142";' in command
    assert command[-3:] == ["bookworm", "base.tar", "/etc/apt/sources.list"]
    (hook,) = (part for part in command if part.startswith("--customize-hook="))
    assert '"$1"/etc/apt/sources.list ' in hook
    assert '"$1"/etc/apt/apt.conf.d/99mmdebstrap' in hook


def test_an_image_with_more_packages_is_a_sandbox_image_with_another_list(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('packages = ["gdb", "nodejs"]')
    mine = find_recipe(str(tmp_path / "mine.toml"))
    assert (mine.name, mine.image, mine.labels) == ("mine", "paddock/mine:latest", SANDBOX.labels)
    plain, more = context_files(recipe=SANDBOX), context_files(recipe=mine)
    assert more == {**plain, BASE_PACKAGES: plain[BASE_PACKAGES] + b"gdb\nnodejs\n"}
    assert input_hash(plain, "sha256:1") != input_hash(more, "sha256:1")


def test_a_list_extends_one_of_paddock_s_and_names_programs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "dev"\npackages = ["gdb"]\nnpm = ["@a/b@1.0.0"]\npip = ["c==2.1"]')
    mine, dev = find_recipe(str(path)), find_recipe("dev")
    assert mine.more_packages == (*dev.more_packages, "gdb")
    assert mine.programs == Programs(("@a/b@1.0.0",), ("c==2.1",), None)
    files = context_files(recipe=mine)
    folder = "images/sandbox/programs"
    assert files[f"{folder}/npm"] == b"@a/b@1.0.0\n"
    assert files[f"{folder}/requirements.txt"] == b"c==2.1\n"
    # The authorities of this machine are no input: another one makes the same image.
    assert not [name for name in files if "authorities" in name]
    (tmp_path / "mine.lock").write_text("c==2.1 --hash=sha256:0\n")
    locked = context_files(recipe=find_recipe(str(path)))
    assert locked[f"{folder}/requirements.txt"] == b"c==2.1 --hash=sha256:0\n"
    assert input_hash(files, "sha256:1") != input_hash(locked, "sha256:1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "give packages, npm or pip"),
        ('extends = "dev"', "give packages, npm or pip"),
        ('extends = "none"\npackages = ["jq"]', "extends: Paddock has no list none"),
        ('extends = "../dev"\npackages = ["jq"]', "extends: String should match"),
        ('npm = ["codex"]', "npm.0: String should match"),
        ('npm = ["codex@latest"]', "npm.0: String should match"),
        ('npm = ["--registry=x@1"]', "npm.0: String should match"),
        ('pip = ["aider"]', "pip.0: String should match"),
        ('pip = ["aider>=1"]', "pip.0: String should match"),
        ('pip = ["-r x==1"]', "pip.0: String should match"),
    ],
)
def test_lists_of_programs_that_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BuildError, match=re.escape(told)):
        find_recipe(str(tmp_path / "mine.toml"))


def test_what_agents_need_is_locked() -> None:
    """Each program of PyPI with digests, and in the version that its list names."""
    locks = {name: recipe.programs for name, recipe in recipes().items() if recipe.programs.pip}
    assert set(locks) == {"aider", "mini-swe-agent"}
    for programs in locks.values():
        assert programs.lock is not None
        for wanted in programs.pip:
            assert f"\n{wanted} \\\n    --hash=sha256:" in programs.lock


@pytest.mark.parametrize(
    ("image", "recipe", "built"),
    [
        ("paddock/sandbox:latest", "sandbox", "paddock/sandbox:latest"),
        ("paddock/sandbox:mine", "sandbox", "paddock/sandbox:mine"),
        ("paddock/dev:2", "dev", "paddock/dev:2"),
        # Not ours to replace.
        ("example.org/agents:3", "sandbox", "paddock/sandbox:latest"),
        ("example.org/paddock/dev:3", "sandbox", "paddock/sandbox:latest"),
        ("paddock/control-plane:latest", "sandbox", "paddock/sandbox:latest"),
    ],
)
def test_the_default_image_is_the_one_that_is_built(image: str, recipe: str, built: str) -> None:
    default = default_recipe(image)
    assert (default.name, default.image) == (recipe, built)
    assert find_recipe("node", default_image=image).image == "paddock/node:latest"


def test_every_list_can_be_built_by_its_name() -> None:
    assert set(recipes()) == RECIPES
    for name, recipe in recipes().items():
        assert find_recipe(name) == recipe
        assert recipe.description
