#!/usr/bin/env bash
# Installs the conformance suite of the Model Context Protocol, and a Node that it runs on: 240 MiB
# from npm, below tests/foreign/conformance, and once for each change of their versions.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
cd tests/foreign/conformance

installed=node_modules/.installed
cmp -s package-lock.json "$installed" && exit 0
step "installing the conformance suite of the Model Context Protocol"
# It needs no script to be run.
npm ci --no-audit --no-fund --ignore-scripts --prefer-offline 2>&1 | dimmed
cp package-lock.json "$installed"
