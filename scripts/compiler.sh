#!/usr/bin/env bash
# Checks for a C compiler, with which the security tests compile programs that attack a sandbox.
# On Debian and Ubuntu, as root, it installs one; elsewhere it reports that it is missing.
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
compiles || fail "gcc is installed, but can't compile a static program"
