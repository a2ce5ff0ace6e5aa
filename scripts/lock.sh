#!/usr/bin/env bash
# Writes the exact versions to install: requirements.lock for running, and requirements-dev.lock
# for tests and lint. They fit every supported Python and machine, and name no package index.
# Locked versions stay as long as they fit; `--upgrade` takes newer ones.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
        pyproject.toml "$@" >/dev/null
}

compile --extra dev --extra cluster --extra oidc --extra otel --output-file requirements-dev.lock "$@"
compile --extra cluster --extra oidc --extra otel --constraint requirements-dev.lock --output-file requirements.lock "$@"

# What images with programs of PyPI have, whose Python has this version.
for name in aider mini-swe-agent; do
    .venv/bin/python -m images.programs "$name" | .venv/bin/python -m uv pip compile --quiet \
        --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --custom-compile-command 'make lock' - "$@" \
        --output-file "images/sandbox/$name.lock" >/dev/null
done

# What the tests install for programs in sandboxes, whose Python has this version.
for name in jupyter jupyterlab streamlit; do
    more=()
    if [ "$name" = streamlit ]; then more=(--no-deps); fi
    .venv/bin/python -m uv pip compile --quiet --python-version 3.11 "${more[@]}" \
        --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
        "tests/fixtures/applications/$name.in" "$@" \
        --output-file "tests/fixtures/applications/$name.lock" >/dev/null
done

# The clients of other projects that `make test-foreign` installs.
for wanted in tests/foreign/pins/*.in; do
    version=3.11
    # It runs on no older one.
    if [ "$wanted" = tests/foreign/pins/openhands.in ]; then version=3.12; fi
    .venv/bin/python -m uv pip compile --quiet --universal --python-version "$version" \
        --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
        "$wanted" "$@" --output-file "${wanted%.in}.lock" >/dev/null
done
