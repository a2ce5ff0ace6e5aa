#!/usr/bin/env bash
# Checks for a static busybox and for musl, of which the tests make images that have nothing of
# Paddock's. On Debian and Ubuntu, as root, it installs them; elsewhere it says how to, and these
# tests are skipped without them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

found() {
    command -v busybox >/dev/null && ls /lib/ld-musl-*.so.1 >/dev/null 2>&1
}

found || (require foreign) || true
