#!/usr/bin/env bash
# Checks that the engine has the runtime crun, under which the tests run sessions once more. On
# Debian and Ubuntu, as root, it installs crun and registers it with the running engine; elsewhere
# it says how to, and these tests are skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

.venv/bin/python -m scripts.engine_runtime crun --registered && exit 0
command -v crun >/dev/null || (require crun) || exit 0
program=$(command -v crun)
unified=/sys/fs/cgroup/unified
if [ -n "$(cat "$unified/cgroup.controllers" 2>/dev/null)" ]; then
    # crun refuses hybrid control groups, so it does not see the second version there.
    wrapper=/usr/local/libexec/crun-without-unified
    step "writing $wrapper, because control groups are hybrid here"
    install -D -m 755 /dev/stdin "$wrapper" <<SCRIPT
#!/bin/sh
exec unshare --mount --propagation slave sh -c 'umount $unified && exec "\$0" "\$@"' $program "\$@"
SCRIPT
    program=$wrapper
fi
.venv/bin/python -m scripts.engine_runtime crun "$program" || exit 0
