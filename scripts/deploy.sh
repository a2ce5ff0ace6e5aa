#!/usr/bin/env bash
# Starts the control plane as a container, or updates it; sandboxes keep running meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/compose.sh # before it is needed
.venv/bin/python -m images build control-plane
scripts/shared-state.sh
if ! scripts/compose.sh up -d; then
    scripts/compose.sh logs host-check | dimmed
    fail "the control plane was not started, see above"
fi
step "listening on http://$(scripts/compose.sh port control-plane 8700)"
step "admin key in $(compose_state)/admin.key; \`make down\` takes it down"
