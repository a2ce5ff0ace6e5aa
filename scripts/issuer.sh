#!/usr/bin/env bash
# Installs the issuer of tokens by which the tests sign in: 10 MiB from npm, below
# tests/support/issuer, and once for each change of its versions.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
scripts/node.sh
cd tests/support/issuer

installed=node_modules/.installed
cmp -s package-lock.json "$installed" && exit 0
step "installing the issuer of tokens of the tests"
# It needs no script to be run.
npm ci --no-audit --no-fund --ignore-scripts --prefer-offline 2>&1 | dimmed
cp package-lock.json "$installed"
