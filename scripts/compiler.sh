#!/usr/bin/env bash
# Checks for a C compiler, with which the security tests compile programs that attack a sandbox.
# On Debian and Ubuntu, as root, it installs one; elsewhere it says how to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

compiles() {
    command -v gcc >/dev/null &&
        echo 'int main(void) { return 0; }' | gcc -static -x c -o /dev/null - 2>/dev/null
}

compiles && exit 0
require compiler
compiles || fail "gcc is installed, but can't compile a static program"
