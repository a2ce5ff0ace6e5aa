#!/usr/bin/env bash
# Checks for what `make hosts` boots other systems with: QEMU, mmdebstrap and mke2fs.
# On Debian and Ubuntu, as root, it installs them; elsewhere it says how to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

found() {
    command -v qemu-system-x86_64 >/dev/null && command -v mmdebstrap >/dev/null &&
        command -v mke2fs >/dev/null
}

found && exit 0
require emulator
found || fail "qemu-system-x86_64, mmdebstrap or mke2fs is not found"
