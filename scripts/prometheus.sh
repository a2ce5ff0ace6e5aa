#!/usr/bin/env bash
# Checks for Prometheus and its promtool, with which tests make the alerts of docs/operations fire.
# On Debian and Ubuntu, as root, it takes both programs out of the system's package into
# /var/cache/paddock-prometheus, and installs nothing: the package would start a server. Elsewhere it
# says so, and these tests are skipped without them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

place=/var/cache/paddock-prometheus
programs=(prometheus promtool)
found() {
    for name in "${programs[@]}"; do
        command -v "$name" >/dev/null || [ -x "$place/bin/$name" ] || return 1
    done
}

found && exit 0
if ! can_install; then
    step "Prometheus is missing: the tests of alerts are skipped. Get it from https://prometheus.io/download/"
    exit 0
fi
step "fetching Prometheus into $place"
rm -rf "$place"
mkdir -p "$place"/{bin,package}
apt-get -q -o DPkg::Lock::Timeout=120 update 2>&1 | dimmed
(cd "$place/package" && apt-get -q -o APT::Sandbox::User=root download prometheus 2>&1 | dimmed)
dpkg-deb --extract "$place"/package/*.deb "$place/package/root"
for name in "${programs[@]}"; do mv "$place/package/root/usr/bin/$name" "$place/bin/"; done
rm -rf "$place/package"
