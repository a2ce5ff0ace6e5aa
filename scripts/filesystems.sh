#!/usr/bin/env bash
# Checks for the programs that make the other file systems on which a state directory is tested.
# On Debian and Ubuntu, as root, it installs them; elsewhere it says how to, and these tests are
# skipped without them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

found() {
    command -v mkfs.btrfs >/dev/null && command -v mkfs.xfs >/dev/null
}

found || (require filesystems) || true
