#!/usr/bin/env bash
# Makes sure that a C compiler is here: the security tests compile the programs that attack a
# sandbox. On Debian and Ubuntu, as root, installs one; elsewhere says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

compiles() {
    command -v gcc >/dev/null &&
        echo 'int main(void) { return 0; }' | gcc -static -x c -o /dev/null - 2>/dev/null
}

compiles && exit 0
can_install || fail "no C compiler: install gcc and the C library's static archive (libc6-dev)"
step "no C compiler here: installing gcc"
apt_install gcc libc6-dev
compiles || fail "gcc is installed, but compiles no static program"
