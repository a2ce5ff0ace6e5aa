#!/usr/bin/env bash
# Checks for chromium, in which a test opens a page of a sandbox.
# On Debian, as root, it installs it; elsewhere it reports that it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

command -v chromium >/dev/null && exit 0
can_install || fail "no chromium: install it"
step "no chromium here: installing it"
apt_install chromium
command -v chromium >/dev/null || fail "chromium is installed, but not found"
