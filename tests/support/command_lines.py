"""Command lines for a fuzz test: mostly close to what the option tables allow, some far from it."""

from collections.abc import Sequence

from hypothesis import strategies as st

from sandbox_agent.decide.options import _FIND_FILE, _FIND_PLAIN, _FIND_VALUE, SAFE, Table
from tests.support.traced.web import PORT

# Options that run, read, write or follow something: none may be accepted.
_UNSAFE = {
    "ls": "-L -H --dereference --dereference-command-line "
    "--dereference-command-line-symlink-to-dir",
    "cat": "--files0-from=list",
    "head": "-5c -1n",
    "tail": "--pid=1 -5c +1 -1f",
    "grep": "-f -R --file --file=list --exclude-from=list -D --dereference-recursive -flist",
    "find": "-L -H -follow -exec -execdir -ok -delete -fprint -fls -files0-from -D -O3 -xtype "
    "{} ; +",
    "wc": "--files0-from=list --files0-from --total=only",
    "stat": "-L --dereference",
    "mkdir": "-Z --context --context=x",
    "touch": "-r --reference --reference=/canary/secret -rsecret --ref=secret",
    "cp": "-t -s -l -L -H -b -S -Z --parents --target-directory=/canary --symbolic-link --link "
    "--dereference --backup --suffix=x --attributes-only --copy-contents --path -t/canary",
    "mv": "-t -b -S -Z --target-directory=/canary --backup=t --exchange -t/canary",
    "rm": "--no-preserve-root --recursiv",
    "curl": "-o -O -T -K -d -D -c -b -E -F -J -n -z --output --output=/canary/new --config --json "
    "--trace --stderr --netrc-file --cookie-jar --proto-default --etag-save --libcurl --hsts "
    "--alt-svc --remote-name-all -O/canary/new -o/canary/new --data @secret --next -:",
    "uname": "",
    "whoami": "--evil",
    "date": "-f -r -s --file=secret --reference=secret --set=now -fsecret",
    "env": "-S -C --split-string=evil --chdir=/ -Sevil evil -- -v",
    "pwd": "-x",
    "echo": "-e",
}
_VALUE_WORDS = (
    "0 1 5 -1 +2 1k 5x = x auto always never /canary/secret ../canary a.txt out-dir secret "
    "over recurse skip read all name descriptor full-iso +%s c %n %N %s none b inside now "
    "2020-01-01 @0 @secret -f -- 700 u=rwx,go= http://127.0.0.1:8080/x http,file t yes "
    "without-match mode,timestamps,links mode,xattr f d l :x "
)
_DATES = (
    "now",
    "2020-01-01",
    "@0",
    'TZ="UTC" now',
    'TZ="/canary/secret" now',
    ' TZ="../../../canary/secret"2020-01-01',
)
_DATE_OPTIONS = {"d", "date", "newermt", "newerat"}
_ODD_VALUES = (
    *_DATES,
    "%output{/canary/new}x",
    "x y",
    "",
)
_VALUES = [*_VALUE_WORDS.split(), *_ODD_VALUES]
_NAME_WORDS = (
    "a.txt sub b.txt deep c.txt over x secret workspace out-file out-dir rel-file rel-dir "
    "late late-file gone root proc loop in-file in-dir up pile new from brought list tool "
    "empty missing canary etc passwd .. . .. ... -rf --help žluť "
)
_NAMES = [*_NAME_WORDS.split(), "a b", "new\nline"]
_STARTS = (
    "", "", "", "", "", "", "./", "../", "/", "//", "/workspace/", "//workspace/", "/./workspace/",
    "/../workspace/", "/workspace//", "../workspace/", "/canary/../workspace/",
    "/bin/../workspace/", "/proc/self/cwd/", "/proc/self/root/workspace/", "/dev/fd/",
    "/workspace-evil/", "/canary/", "/etc/canary/", "/proc/../workspace/", "~/", "file://", "x://",
)  # fmt: skip

_PATHS = st.builds(
    lambda start, names, slash, end: start + slash.join(names) + end,
    st.sampled_from(_STARTS),
    st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4),
    st.sampled_from(["/", "/", "/", "/../", "//", "/./"]),
    st.sampled_from(["", "", "", "", "/", "/.", "/..", "//"]),
)
# Words that are valid inside a workspace: with them, most commands get as far as running.
_PLAIN_WORDS = (
    "a.txt sub sub/b.txt sub/deep deep b.txt in-dir/c.txt over over/in-file pile pile/new "
    "pile/x from from/new from/x from/in-dir from/brought in-dir in-file list empty secret "
    "late/q brought/a.txt in-dir/a.txt new/../out-dir/q "
    "missing new new/a.txt new/deeper . sub/.. sub/over/../a.txt ./a.txt /workspace/sub "
    "//workspace/a.txt "
)
_PLAIN = _PLAIN_WORDS.split()
_INSIDE = (
    st.sampled_from(_PLAIN)
    | st.sampled_from(_PLAIN)
    | st.builds("/".join, st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3))
)
_WEB_URLS = st.sampled_from(
    [f"http://127.0.0.1:{PORT}/{path}" for path in ("x", "away", "../canary/a.txt", "?q")]
)
_URLS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(
            ["http://", "HTTP://", "", "file://", "{http,file}://", "ftp://", "dict://"]
        ),
        st.sampled_from([f"127.0.0.1:{PORT}", f"localhost:{PORT}", "", "file:", "127.0.0.1:1"]),
        st.sampled_from(
            ["/x", "/away", "/../a.txt", "/canary/a.txt", "", "?q", "/[1-2]", "/{a,b}"]
        ),
    ),
)
_SOME_VALUE = st.sampled_from(_VALUES) | _INSIDE
_RAW = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(
    "-=/.ctfrn5 '\"\\~*@:", max_size=8
)
_DESTINATIONS = (
    "over", "pile", "sub", "sub/over", "in-dir", "new", ".", "from", "over/", "..", "rel-dir",
    "pile/new", "pile/x", "in-file", "from/x", "x", "empty", "/workspace", "late", "late/a.txt",
)  # fmt: skip
# These take no path, and usually no argument.
_ALONE = {"date", "env", "uname", "whoami"}
_NO_OPTIONS = Table("any")
_MIGHTY = {"cp", "mv", "mkdir", "touch", "grep", "find", "curl"}
_OTHER_WORDS = "bash sh ./tool /bin/ls LS python3 evil canary-tool git /workspace/tool ls. dd "
_OTHERS = _OTHER_WORDS.split()


def _table_options(name: str) -> list[str]:
    if name == "find":
        return [*_FIND_PLAIN.split(), *_FIND_VALUE.split(), *_FIND_FILE.split()]
    table = SAFE.get(name, _NO_OPTIONS)
    letters = [f"-{letter}" for letter in table.short if letter != ":"]
    return letters + [f"--{word.rstrip('=?')}" for word in table.long.split()]


@st.composite
def _tame_option(draw: st.DrawFn, name: str, known: Sequence[str]) -> list[str]:
    option = draw(st.sampled_from(known))
    if option.lstrip("-") in _DATE_OPTIONS:
        return [option, draw(st.sampled_from(_DATES))]
    return [option, draw(_SOME_VALUE)] if _takes_value(name, option) else [option]


@st.composite
def _wild_option(
    draw: st.DrawFn, name: str, known: Sequence[str], unsafe: Sequence[str]
) -> list[str]:
    """One option: unsafe, with or without a value, abbreviated or in a cluster."""
    option = draw(st.sampled_from(known))
    way = draw(st.integers(6, 11))
    if way == 6 and unsafe:
        return draw(st.sampled_from([[item] for item in unsafe]) | st.just([unsafe[0], "list"]))
    if option.startswith("--"):
        text = f"{option}={draw(_SOME_VALUE)}"
        return [text[: draw(st.integers(3, len(option)))]] if way == 7 else [text]
    if name == "find" or way == 7:
        return [option, draw(_SOME_VALUE)]
    letters = draw(st.lists(st.sampled_from([o[1:] for o in known if o[1:2] != "-"]), max_size=3))
    return ["-" + "".join(letters) + option[1:] + (draw(_SOME_VALUE) if way > 9 else "")]


def _takes_value(name: str, option: str) -> bool:
    if name == "find":
        return option in f"{_FIND_VALUE} {_FIND_FILE}".split()
    table = SAFE.get(name, _NO_OPTIONS)
    if option.startswith("--"):
        return f"{option[2:]}=" in table.long.split()
    return f"{option[1:]}:" in table.short and f"{option[1:]}::" not in table.short


@st.composite
def _arguments(draw: st.DrawFn, name: str) -> list[str]:
    known = _table_options(name) or ["-n"]
    tame = draw(st.integers(0, 2)) > 0
    option = _tame_option(name, known)
    if not tame:
        option |= _wild_option(name, known, _UNSAFE.get(name, "").split())
    if name == "curl":
        operand: st.SearchStrategy[str] = _WEB_URLS if tame else _URLS
    elif name in _ALONE:
        tame_words = ["+%s", "+%F %Z"]
        operand = st.sampled_from(tame_words if tame else [*tame_words, "evil", "A=b", "a.txt"])
    else:
        operand = _INSIDE if tame else _INSIDE | _PATHS
    fewest = 1 if tame and name not in _ALONE else 0
    words: list[list[str]] = draw(st.lists(option, max_size=1 if tame else 3))
    words += draw(st.lists(operand.map(lambda word: [word]), min_size=fewest, max_size=3))
    if name in {"cp", "mv"}:
        words += [["a.txt"], [draw(st.sampled_from(_DESTINATIONS) | operand)]][-1 - tame :]
    if not tame and draw(st.integers(0, 3)) == 0:
        words += [[draw(st.sampled_from(["--", "-", "-5", "+5", "(", ")", "!", ""]) | _RAW)]]
    if draw(st.booleans()):
        words = draw(st.permutations(words))
    return [word for group in words for word in group]


@st.composite
def argument_lists(draw: st.DrawFn, names: Sequence[str]) -> list[str]:
    """An argv: a name, mostly one of `names`, and matching arguments."""
    name = draw(st.sampled_from(names) | st.sampled_from([n for n in names if n in _MIGHTY]))
    argv = [name, *draw(_arguments(name))]
    if draw(st.integers(0, 19)) == 0:
        argv[0] = draw(st.sampled_from(_OTHERS))
    return argv


@st.composite
def command_strings(draw: st.DrawFn, names: Sequence[str]) -> str:
    """A command line: an argv with unusual quotes and spaces, or any text."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from(names)) + draw(st.sampled_from(" \t")) + draw(_RAW)
    space = st.sampled_from([" ", " ", " ", "  ", "\t", "\u00a0", "\u2003", "\x0b", "\x1f"])
    text = ""
    for word in draw(argument_lists(names)):
        text += draw(_quoted(word)) + draw(space)
    return text


@st.composite
def _quoted(draw: st.DrawFn, word: str) -> str:
    way = draw(st.integers(0, 9))
    if way == 0 or (" " in word and way < 7):
        quote = draw(st.sampled_from("'\""))
        return f"{quote}{word}{quote}"
    if way == 1:
        at = draw(st.integers(0, len(word)))
        quote = draw(st.sampled_from(["'", '"', "''", '""', "\\"]))
        return word[:at] + quote + word[at:]
    return word


def working_directories() -> st.SearchStrategy[str]:
    """Mostly the workspace, otherwise a directory or a link in it."""
    inner = ["sub", "sub/deep", "over", "x", "in-dir", "out-dir", "late", "missing", "from"]
    return st.sampled_from(["/workspace"] * 18 + [f"/workspace/{name}" for name in inner])
