"""The string rules refuse paths and options of listed commands that leave the workspace."""

import pytest

from tests.support.arsenal import Arsenal
from tests.support.attack import assert_refused
from tests.support.attempts import spellings
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

Boxes = dict[str, Box]


@spellings(
    (
        "cat /usr/share/canary",
        "cat //usr/share/canary",
        "cat ../usr/share/canary",
        "cat /workspace/../usr/share/canary",
        "cat sub/../../usr/share/canary",
        "cat /workspace-evil/file",
        "cat /workspacex",
        "cat '/usr/share/canary'",
        "cat -- /usr/share/canary",
        "cat -n -- ../x",
        "cat file /usr/share/canary",
        "cat /proc/self/root/usr/share/canary",
        "cat /proc/1/environ",
        "head -n 1 /usr/share/canary",
        "head -n1 /usr/share/canary",
        "tail -c +1 /usr/share/canary",
        "tail -f /usr/share/canary",
        "wc /usr/share/canary",
        "stat /usr/share/canary",
        "ls /usr/share",
        "ls -la ..",
        "grep canary /usr/share/canary",
        "grep -r canary /usr/share",
        "grep -e canary /usr/share/canary",
        "grep --regexp=canary /usr/share/canary",
        "find /usr/share -name canary",
        "find . /usr/share",
        "cp /usr/share/canary new",
        "cp -r /usr/share new",
        "mv /usr/share/open/file new",
        "cp file /usr/share/open/new",
        "mv file /tmp/new",
        "mkdir /usr/share/open/new",
        "mkdir -p ../tmp/new",
        "touch /workspace/../tmp/new",
        "touch /usr/share/open/file",
        "rm /usr/share/open/file",
        "rm -rf /",
        "rm -rf ..",
        "rm -- /usr/share/open/file",
    ),
    text="a path outside of the workspace",
    layer="words",
    levels="low medium",
)
async def test_path(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    rule = "path-outside-workspace"
    await assert_refused(plain[level], arsenal, command=name, rule=rule)
    argv = name.replace("'", "").split()
    await assert_refused(plain[level], arsenal, argv=argv, rule=rule)


@spellings(
    (
        "find . -exec forbidden {} +",
        "find . -execdir forbidden {} +",
        "find . -ok forbidden {} +",
        "find . -okdir forbidden {} +",
        "find . -delete",
        "find . -fprint /tmp/new",
        "find . -fprint0 new",
        "find . -fprintf new x",
        "find . -fls new",
        "find . -files0-from /usr/share/canary",
        "find -L . -name canary",
        "find -H link",
        "find . -follow",
        "grep -f /usr/share/canary file",
        "grep -f/usr/share/canary file",
        "grep -nf /usr/share/canary file",
        "grep --file=/usr/share/canary file",
        "grep --fil=/usr/share/canary file",
        "grep --exclude-from=/usr/share/canary x file",
        "grep -R canary .",
        "wc --files0-from=/usr/share/canary",
        "wc --files0-from /usr/share/canary",
        "cp -t /tmp file",
        "cp -t/tmp file",
        "cp --target-directory=/tmp file",
        "cp --target=/tmp file",
        "cp -l link new",
        "cp -s /usr/share/canary new",
        "cp -L link new",
        "cp -H link new",
        "cp --parents sub/../../x new",
        "cp -b file sub",
        "cp --backup=simple --suffix=/../../tmp/x file sub",
        "mv -t /tmp file",
        "mv --suffix=/x -b file sub",
        "touch -r /usr/share/canary file",
        "touch --reference=/usr/share/canary file",
        "ls -L directory",
        "ls -H directory",
        "ls --dereference directory",
        "stat -L link",
        "tail --pid=1 file",
        "ls --unknown",
        "cat --unknown",
        "cat --show-al file",
    ),
    text="an option that runs, reads or writes something else, or that is not known",
    layer="words",
    levels="low medium",
)
async def test_option(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    rule = "option-not-allowed"
    await assert_refused(plain[level], arsenal, command=name, rule=rule)
    await assert_refused(plain[level], arsenal, argv=name.split(), rule=rule)


@spellings(
    (
        "env forbidden",
        "env -i forbidden",
        "env X=1 forbidden",
        "env -S forbidden",
        "env --split-string=forbidden",
        "env -C /usr/share ls",
        "date -f /usr/share/canary",
        "date --file=/usr/share/canary",
        "date -r /usr/share/canary",
        "date -s 2020-01-01",
        "date 010100002020",
        "neofetch --config /usr/share/canary",
        "neofetch /usr/share/canary",
        "curl file:///usr/share/canary",
        "curl FILE:///usr/share/canary",
        "curl --url file:///usr/share/canary",
        "curl --url=file:///usr/share/canary",
        "curl ftp://127.0.0.1/",
        "curl gopher://127.0.0.1/",
        "curl dict://127.0.0.1/",
        "curl ftp.example.org",
        "curl -o /tmp/new http://127.0.0.1/",
        "curl -o/tmp/new http://127.0.0.1/",
        "curl -so new http://127.0.0.1/",
        "curl --output=new http://127.0.0.1/",
        "curl --outpu new http://127.0.0.1/",
        "curl -O http://127.0.0.1/new",
        "curl -J -O http://127.0.0.1/new",
        "curl --output-dir sub -O http://127.0.0.1/new",
        "curl -K /usr/share/canary",
        "curl --config /usr/share/canary",
        "curl -T /usr/share/canary http://127.0.0.1/",
        "curl -d @/usr/share/canary http://127.0.0.1/",
        "curl --data-binary @/usr/share/canary http://127.0.0.1/",
        "curl -F x=@/usr/share/canary http://127.0.0.1/",
        "curl -H @/usr/share/canary http://127.0.0.1/",
        "curl -w @/usr/share/canary http://127.0.0.1/",
        "curl -w %output{new}x http://127.0.0.1/",
        "curl -D new http://127.0.0.1/",
        "curl -c new http://127.0.0.1/",
        "curl -b /usr/share/canary http://127.0.0.1/",
        "curl --trace new http://127.0.0.1/",
        "curl --stderr new http://127.0.0.1/",
        "curl --libcurl new http://127.0.0.1/",
        "curl -E /usr/share/canary http://127.0.0.1/",
        "curl --cacert /usr/share/canary http://127.0.0.1/",
        "curl --netrc-file /usr/share/canary http://127.0.0.1/",
        "curl -x http://127.0.0.1/ http://127.0.0.1/",
        "curl --unix-socket /run/paddock/control.sock http://x/",
        "curl --resolve x:80:127.0.0.1 http://x/",
        "curl -Z http://127.0.0.1/",
    ),
    text="the same of the commands that come with medium",
    layer="words",
    levels="medium",
)
async def test_option_at_medium(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    await assert_refused(plain[level], arsenal, command=name)
    await assert_refused(plain[level], arsenal, argv=name.split())
