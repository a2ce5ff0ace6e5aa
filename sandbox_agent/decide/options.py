"""The safe options of the listed commands, and the parser for their command lines.

A safe option runs no other program and names no file besides the operands. Options that are not in
a table are refused, and so is every abbreviation of a long option. The tables describe GNU
coreutils 9, findutils 4.9, grep 3.8 and curl 7.88. `parse_options` must read an option exactly as
these programs do: a value that is misread as an operand, or the reverse, would be a hole.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# What the operands of a command are.
READ = "read"  # files that it reads
SEARCH = "search"  # a pattern, unless an option gave one, then files that it reads
WRITE = "write"  # files that it makes, changes or removes
COPY = "copy"  # sources, then a destination
MOVE = "move"  # as COPY, but the sources change as well
URL = "url"
FORMAT = "format"  # only `+FORMAT`
NONE = "none"  # no operands are allowed
ANY = "any"  # neither paths nor programs


class Table(NamedTuple):
    """The options of one command, in the notation of getopt.

    `short` has `x` for a flag, `x:` for an option with a value, and `x::` for an option whose value
    is optional and attached. `long` has the same as words: `name`, `name=`, `name=?`. `number`
    means that `-5` counts lines.
    """

    operands: str
    short: str = ""
    long: str = ""
    number: bool = False


class Parsed(NamedTuple):
    """A parsed command line; `refused` is the first option that is not in the table."""

    options: list[tuple[str, str]]
    operands: list[str]
    refused: str | None = None

    def values(self, *names: str) -> list[str]:
        """The values of the options with these names, in order."""
        return [value for name, value in self.options if name in names]


def parse_options(args: Sequence[str], table: Table, lenient: bool = False) -> Parsed:
    """Reads `args` (without the command's name) as GNU getopt does.

    Options may follow operands and may be clustered (`-rn5`); `--` ends them. If `lenient`, an
    unknown option is a flag and a long option may be abbreviated, so nothing is refused.
    """
    parsed = Parsed([], [])
    # In the table's order: an abbreviation stands for the first name that begins with it.
    names = dict.fromkeys(table.long.split())
    rest = iter(args)
    for word in rest:
        if word == "--":
            parsed.operands.extend(rest)
        elif word == "-" or not word.startswith("-"):
            parsed.operands.append(word)
        elif table.number and word[1:].isascii() and word[1:].isdigit():
            parsed.options.append((word[1:], ""))
        else:
            if word.startswith("--"):
                refused, wants_value = _long(word, names, lenient, parsed.options)
            else:
                refused, wants_value = _short(word, table, lenient, parsed.options)
            if refused is not None:
                return parsed._replace(refused=refused)
            if wants_value:
                parsed.options.append((parsed.options.pop()[0], next(rest, "")))
    return parsed


def _long(
    word: str, names: Mapping[str, None], lenient: bool, options: list[tuple[str, str]]
) -> tuple[str | None, bool]:
    name, equals, value = word[2:].partition("=")
    if lenient and name and name not in names and f"{name}=" not in names:
        name = next((full.rstrip("=?") for full in names if full.startswith(name)), name)
    takes_value = f"{name}=" in names
    known = takes_value or f"{name}=?" in names or (name in names and not equals)
    if not known and not lenient:
        return f"--{name}", False
    options.append((name, value))
    return None, takes_value and not equals


def _short(
    word: str, table: Table, lenient: bool, options: list[tuple[str, str]]
) -> tuple[str | None, bool]:
    for position, letter in enumerate(word[1:], start=2):
        at = -1 if letter == ":" else table.short.find(letter)
        if at < 0 and not lenient:
            return f"-{letter}", False
        if at >= 0 and table.short[at + 1 : at + 2] == ":":
            value = word[position:]
            options.append((letter, value))
            return None, not value and table.short[at + 2 : at + 3] != ":"
        options.append((letter, ""))
    return None, False


def parse_find(args: Sequence[str]) -> Parsed:
    """Reads the arguments of find; files that a test compares with count as operands."""
    plain, value, file = _FIND_PLAIN.split(), _FIND_VALUE.split(), _FIND_FILE.split()
    parsed = Parsed([], [])
    rest = iter(args)
    for word in rest:
        if word in file:
            parsed.operands.append(next(rest, ""))
        elif word in value:
            parsed.options.append((word, next(rest, "")))
        elif word in plain:
            parsed.options.append((word, ""))
        elif word.startswith("-") and word not in {"-", "--"}:
            return parsed._replace(refused=word)
        else:
            parsed.operands.append(word)
    return parsed


# These options of find are left out: those that run a program (-exec, -ok), delete, write (-fprint,
# -fls), read names from a file (-files0-from) or follow symbolic links (-L, -H, -follow, -xtype).
_FIND_PLAIN = (
    "( ) ! , -P -a -and -not -o -or -d -daystart -depth -empty -executable -false --help -help "
    "-ignore_readdir_race -ls -mount -nogroup -noignore_readdir_race -noleaf -nouser -nowarn "
    "-print -print0 -prune -quit -readable -true --version -version -warn -writable -xdev"
)
_FIND_VALUE = (
    "-amin -atime -cmin -ctime -fstype -gid -group -ilname -iname -inum -ipath -iregex "
    "-iwholename -links -lname -maxdepth -mindepth -mmin -mtime -name -newerBt -newerat -newerct "
    "-newermt -path -perm -printf -regex -regextype -size -type -uid -used -user -wholename"
)
_FIND_FILE = "-anewer -cnewer -newer -samefile"

_INFO = " help version"

# find has its own language: see parse_find. echo has no table: it only prints its arguments.
SAFE: Mapping[str, Table] = {
    "pwd": Table(ANY, "LP", "logical physical" + _INFO),
    # -H and -L are left out: they follow symbolic links.
    "ls": Table(
        READ,
        "1aAbBcCdDfFgGhI:iklmnNopqQrRsStT:uUvw:xX",
        "all almost-all author block-size= classify=? color=? directory dired escape file-type "
        "format= full-time group-directories-first hide= hide-control-chars human-readable "
        "ignore= ignore-backups indicator-style= inode kibibytes literal no-group numeric-uid-gid "
        "quote-name quoting-style= recursive reverse show-control-chars si size sort= tabsize= "
        "time= time-style= width= zero" + _INFO,
    ),
    "cat": Table(
        READ,
        "AbeEnstTuv",
        "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"
        + _INFO,
    ),
    "head": Table(
        READ, "c:n:qvz", "bytes= lines= quiet silent verbose zero-terminated" + _INFO, number=True
    ),
    # --pid is left out: it probes other processes.
    "tail": Table(
        READ,
        "c:fFn:qs:vz",
        "bytes= follow=? lines= max-unchanged-stats= quiet retry silent sleep-interval= verbose "
        "zero-terminated" + _INFO,
        number=True,
    ),
    # -f and --exclude-from are left out: they name files. So is -R: it follows symbolic links.
    "grep": Table(
        SEARCH,
        "0123456789A:B:C:EFGHILPTUVZabcd:e:hilm:noqrsvwxyz",
        "after-context= basic-regexp before-context= binary binary-files= byte-offset color=? "
        "colour=? context= count directories= exclude= exclude-dir= extended-regexp "
        "files-with-matches files-without-match fixed-strings group-separator= ignore-case "
        "include= initial-tab invert-match label= line-buffered line-number line-regexp "
        "max-count= no-filename no-group-separator no-ignore-case no-messages null null-data "
        "only-matching perl-regexp quiet recursive regexp= silent text with-filename word-regexp"
        + _INFO,
    ),
    # --files0-from is left out: it reads names from a file.
    "wc": Table(READ, "clLmw", "bytes chars lines max-line-length words" + _INFO),
    # -L is left out: it follows symbolic links.
    "stat": Table(READ, "c:ft", "cached= file-system format= printf= terse" + _INFO),
    "mkdir": Table(WRITE, "m:pv", "mode= parents verbose" + _INFO),
    # -r is left out: it names a file.
    "touch": Table(WRITE, "acd:fhmt:", "date= no-create no-dereference time=" + _INFO),
    # Left out: -t, because it names the destination; -l and -s, because they make links; -H and -L,
    # because they follow links; --parents, because a `..` in a source would then leave the
    # destination; the options for back-ups; and --attributes-only, because cp also gets
    # --remove-destination and would leave an empty file.
    "cp": Table(
        COPY,
        "adfinpPrRTuvx",
        "archive force interactive no-clobber no-dereference no-preserve= "
        "no-target-directory one-file-system preserve=? recursive reflink=? remove-destination "
        "sparse= strip-trailing-slashes update verbose" + _INFO,
    ),
    "mv": Table(
        MOVE,
        "finTuv",
        "force interactive no-clobber no-target-directory strip-trailing-slashes update verbose"
        + _INFO,
    ),
    "rm": Table(
        WRITE,
        "dfiIrRv",
        "dir force interactive=? one-file-system preserve-root=? recursive verbose" + _INFO,
    ),
    # Other code refuses values that begin with @, because curl would read a file. Left out: -o, -O,
    # -D, -c and other options that write files; -d, -F, -T, -K, -b, -E, -n and -z, which may read
    # them; and options that choose another way to the server (-x, --resolve, --proto,
    # --unix-socket).
    "curl": Table(
        URL,
        "#046A:e:fgGH:iIkLm:Nqr:sSu:vVw:X:",
        "basic compressed connect-timeout= data-raw= disable fail fail-early fail-with-body get "
        "globoff head header= http1.0 http1.1 http2 include insecure ipv4 ipv6 limit-rate= "
        "location max-filesize= max-redirs= max-time= no-buffer no-progress-meter "
        "oauth2-bearer= path-as-is progress-bar range= raw referer= request= retry= "
        "retry-all-errors retry-connrefused retry-delay= retry-max-time= show-error silent "
        "tlsv1.2 tlsv1.3 url= user= user-agent= verbose write-out=" + _INFO,
    ),
    "uname": Table(
        ANY,
        "amnioprsv",
        "all hardware-platform kernel-name kernel-release kernel-version machine nodename "
        "operating-system processor" + _INFO,
    ),
    "whoami": Table(ANY, "", _INFO),
    # -f and -r are left out: they name files. So is -s: it sets the clock.
    "date": Table(
        FORMAT,
        "d:I::Ru",
        "date= debug iso-8601=? resolution rfc-3339= rfc-email universal utc" + _INFO,
    ),
    # -S and -C are left out: they serve to run a command.
    "env": Table(NONE, "0iu:", "ignore-environment null unset=" + _INFO),
    "which": Table(ANY, "a", ""),
    "neofetch": Table(NONE, "", "stdout"),
    "find": Table(READ),
}

# The options whose value is a date.
DATES: Mapping[str, tuple[str, ...]] = {
    "date": ("d", "date"),
    "find": ("-newerBt", "-newerat", "-newerct", "-newermt"),
    "touch": ("d", "date"),
}

# For levels that allow any command and option: there, only the paths matter that a guarded command
# writes. These tables list every option that takes a value, so that no value is read as an operand.
# head, netrc and others are flags that would otherwise be read as abbreviations of a longer name.
VALUES: Mapping[str, Table] = {
    "mkdir": Table(WRITE, "m:", "mode="),
    "touch": Table(WRITE, "d:r:t:", "date= reference= time="),
    "rm": Table(WRITE),
    "cp": Table(COPY, "S:t:", "no-preserve= sparse= suffix= target-directory="),
    "mv": Table(MOVE, "S:t:", "suffix= target-directory="),
    "curl": Table(
        URL,
        "A:b:c:C:d:D:e:E:F:H:K:m:o:P:Q:r:t:T:u:U:w:x:X:y:Y:z:",
        "crlf ftp-ssl-ccc head netrc parallel socks5-gssapi "
        "abstract-unix-socket= alt-svc= aws-sigv4= cacert= capath= cert= cert-type= ciphers= "
        "config= connect-timeout= connect-to= continue-at= cookie= cookie-jar= create-file-mode= "
        "crlfile= curves= data= data-ascii= data-binary= data-raw= data-urlencode= delegation= "
        "dns-interface= dns-ipv4-addr= dns-ipv6-addr= dns-servers= doh-url= dump-header= "
        "egd-file= engine= etag-compare= etag-save= expect100-timeout= form= form-string= "
        "ftp-account= ftp-alternative-to-user= ftp-method= ftp-port= ftp-ssl-ccc-mode= "
        "happy-eyeballs-timeout-ms= header= hostpubmd5= hostpubsha256= hsts= interface= json= "
        "keepalive-time= key= key-type= krb= libcurl= limit-rate= local-port= login-options= "
        "mail-auth= mail-from= mail-rcpt= max-filesize= max-redirs= max-time= netrc-file= "
        "noproxy= oauth2-bearer= output= output-dir= parallel-max= pass= pinnedpubkey= preproxy= "
        "proto= proto-default= proto-redir= proxy= proxy-cacert= proxy-capath= proxy-cert= "
        "proxy-cert-type= proxy-ciphers= proxy-crlfile= proxy-header= proxy-key= proxy-key-type= "
        "proxy-pass= proxy-pinnedpubkey= proxy-service-name= proxy-tls13-ciphers= "
        "proxy-tlsauthtype= proxy-tlspassword= proxy-tlsuser= proxy-user= proxy1.0= pubkey= "
        "quote= random-file= range= rate= referer= request= request-target= resolve= retry= "
        "retry-delay= retry-max-time= sasl-authzid= service-name= socks4= socks4a= socks5= "
        "socks5-gssapi-service= socks5-hostname= speed-limit= speed-time= stderr= "
        "telnet-option= tftp-blksize= time-cond= tls-max= tls13-ciphers= tlsauthtype= "
        "tlspassword= tlsuser= trace= trace-ascii= unix-socket= upload-file= url= url-query= "
        "user= user-agent= write-out=",
    ),
}
