#!/usr/bin/env bash
# Writes the exact versions that are installed: requirements.lock for running, and
# requirements-dev.lock for tests and lint. They fit every Python and machine that is allowed, and
# name no package index. What is locked stays where it still fits; `--upgrade` takes newer versions.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
        pyproject.toml "$@" >/dev/null
}

compile --extra dev --output-file requirements-dev.lock "$@"
compile --constraint requirements-dev.lock --output-file requirements.lock "$@"
