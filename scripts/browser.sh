#!/usr/bin/env bash
# Checks for chromium, in which a test opens a page of a sandbox.
# On Debian, as root, it installs it; elsewhere it says how to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

command -v chromium >/dev/null && exit 0
require browser
command -v chromium >/dev/null || fail "chromium is installed, but not found"
