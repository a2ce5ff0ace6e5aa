"""Commands that the string rules refuse before they start."""

import pytest

from orchestrator.ground.errors import ValidationError
from tests.support.arsenal import Arsenal
from tests.support.attack import assert_refused
from tests.support.attempts import attempt, spellings
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

Boxes = dict[str, Box]


@spellings(
    (
        "/bin/ls",
        "./ls",
        "../bin/ls",
        "LS",
        "Cat file",
        "bash -c id",
        "sh file",
        "python3 -c pass",
        "perl -e 1",
        "ln -s /usr/share/canary new",
        "chmod 777 file",
        "dd if=/usr/share/canary",
        "tar -cf new /usr/share",
        "git clone /usr/share",
        "forbidden",
        "sudo ls",
        'c"a"t file',
        "'l's",
        "=ls",
        "X=1 ls",
        "~/ls",
        "l?",
        "*",
    ),
    text="a program by a name that is not listed",
    layer="words",
    levels="low medium",
)
async def test_name(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    await assert_refused(plain[level], arsenal, command=name, rule="command-allowlist")
    argv = name.split(" ")
    await assert_refused(plain[level], arsenal, argv=argv, rule="command-allowlist")


@spellings(
    (
        "ls ; touch marker",
        "ls;touch marker",
        "ls && touch marker",
        "ls & touch marker",
        "ls || touch marker",
        "ls | tee marker",
        "ls > marker",
        "ls >> marker",
        "cat < /usr/share/canary",
        "cat <(ls)",
        "ls `touch marker`",
        "ls $(touch marker)",
        "ls $HOME",
        "ls ${HOME}",
        'ls "; touch marker"',
        "ls '; touch marker'",
        'ls "$(touch marker)"',
        "ls '$(touch marker)'",
        'ls "`touch marker`"',
        "ls '|' tee",
        "ls *; rm -rf /",
        "ls\ntouch marker",
        "ls\rtouch marker",
        "ls \x00touch",
        "find . -name '(' -print",
        "ls !(x)",
    ),
    text="shell operators, also in quotes, before any allowlist is checked",
    layer="words",
)
async def test_operator(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    await assert_refused(plain[level], arsenal, command=name, rule="shell-operators")


@spellings(
    (
        "; touch marker",
        "&& touch marker",
        "| tee marker",
        "> marker",
        "`touch marker`",
        "$(touch marker)",
        "\ntouch marker",
    ),
    text="shell operators as argv words, which stay words",
    layer="no shell",
)
async def test_operator_in_argv(plain: Boxes, level: str, name: str) -> None:
    box = plain[level]
    before = await box.paths()
    done = await box.run(argv=["ls", "--", name, *name.split()])
    assert done.exit_code == 2
    assert sorted(await box.paths()) == sorted(before)


@spellings(
    ("", " ", "\t", "cat 'file", 'cat "file', "'", "cat file'"),
    text="an empty command, or one with a quote that is not closed",
    layer="words",
)
async def test_malformed(plain: Boxes, level: str, name: str) -> None:
    with pytest.raises(ValidationError):
        await plain[level].run(command=name)


@spellings(
    (
        "cat link",
        "cat ./sub/../link",
        "head directory/canary",
        "wc directory/canary",
        "grep canary link",
        "ls directory/",
        "cp link new",
        "cp -r directory/ new",
        "touch link",
        "mkdir directory/new",
        "rm directory/open/file",
        "mv directory/open/file new",
        "mv file directory/open/new",
        "cp file directory/open/new",
    ),
    text="a path that a symbolic link in the workspace leads out of it",
    layer="guard",
    levels="low medium",
)
async def test_link(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    box = plain[level]
    for how in ({"command": name}, {"argv": name.split()}):
        await assert_refused(box, arsenal, rule="path-outside-workspace", **how)


@spellings(
    (
        "touch /usr/share/open/new",
        "mkdir /usr/share/open/new",
        "rm /usr/share/open/file",
        "cp file /usr/share/open/new",
        "cp -t /usr/share/open file",
        "cp --target-dir=/usr/share/open file",
        "mv file /usr/share/open/new",
        "mv /usr/share/open/file new",
        "curl -o /usr/share/open/new http://127.0.0.1/",
        "curl -so/usr/share/open/new http://127.0.0.1/",
        "/bin/touch /usr/share/open/new",
        "/usr/bin/rm /usr/share/open/file",
        "touch /workspacex",
        "touch /workspace/../usr/share/open/new",
        "touch ../usr/share/open/new",
    ),
    text="at high: a guarded command that writes outside of the workspace",
    layer="words",
    levels="high",
)
async def test_write_at_high(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    box, rule = plain[level], "write-outside-workspace"
    await assert_refused(box, arsenal, command=name, rule=rule)
    await assert_refused(box, arsenal, argv=name.split(), rule=rule)


@attempt("a working directory outside of the workspace", layer="words")
async def test_directory(plain: Boxes, arsenal: Arsenal, level: str) -> None:
    box = plain[level]
    outside = ("..", "/", "/usr/share", "/workspacex", "sub/../..")
    for cwd in ("\0", *(() if level == "high" else outside)):
        with pytest.raises(ValidationError):
            await box.run("ls -a", cwd=cwd)
    for cwd in ("directory", "directory/open"):
        done = await box.run("ls -a", cwd=cwd)
        assert (done.exit_code, done.stdout) == (126, "")


@attempt(
    "an environment that makes an allowed program load or run something",
    layer="words",
    levels="low medium",
)
async def test_environment(plain: Boxes, arsenal: Arsenal, level: str) -> None:
    for name in (
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "PATH",
        "HOME",
        "BASH_ENV",
        "IFS",
        "GCONV_PATH",
        "LOCPATH",
        "CURL_HOME",
        "http_proxy",
        "POSIXLY_CORRECT",
        "TMPDIR",
    ):
        value = "/usr/local/lib/forbidden.so"
        await assert_refused(
            plain[level], arsenal, command="ls", env={name: value}, rule="environment-allowlist"
        )
