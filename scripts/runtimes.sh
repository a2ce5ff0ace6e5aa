#!/usr/bin/env bash
# Installs the oldest Node, Bun and Deno, under which the JavaScript client is tested: 340 MiB from
# npm, below sdk/js/runtimes, and once for each change of their versions.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
cd sdk/js/runtimes

installed=node_modules/.installed
cmp -s package-lock.json "$installed" && exit 0
step "installing the JavaScript runtimes of the tests"
# None of them needs a script to be run.
npm ci --no-audit --no-fund --ignore-scripts --prefer-offline 2>&1 | dimmed
cp package-lock.json "$installed"
