#!/usr/bin/env bash
# Prepares a machine for a kubelet; it runs there. What Kubernetes has at fixed places is the
# machine's own, and settings of the kernel, which the host and all machines share, stay as they are.
# Usage: kubelet.sh DIRECTORY; the directory is the machine's.
set -euo pipefail
directory=$1
mountpoint -q /run/state && exit 0

# Manifests have one path for all machines. An engine in a pod has its own beside the state.
for each in state state-engine; do
    mkdir -p "/run/$each" "$directory/$each"
    mount --bind "$directory/$each" "/run/$each"
done
mkdir -p /run/inner
touch /run/docker.sock
mount --bind "$directory/engine.sock" /run/docker.sock
mount -t tmpfs -o mode=0755,nosuid,nodev logs /var/log

# A kubelet demands these values, and would change the host's.
mkdir /run/kernel
while read -r setting value; do
    copy=/run/kernel/${setting//\//.}
    echo "$value" >"$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done <<'SETTINGS'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SETTINGS

# Where root lacks CAP_SYS_RESOURCE, nobody gets it, and nobody may be spared by the OOM killer.
cat >"$directory/runtime" <<'RUNTIME'
#!/bin/sh
for word; do
    case $before in
        --bundle | -b) file=$word/config.json ;;
        --process | -p) file=$word ;;
    esac
    before=$word
done
[ -z "$file" ] || sed -i -e 's/,"CAP_SYS_RESOURCE"//g' -e 's/"CAP_SYS_RESOURCE",//g' \
    -e 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$file"
exec runc "$@"
RUNTIME
chmod 0755 "$directory/runtime"
printf '{"runtimes": {"spare": {"path": "%s"}}, "default-runtime": "spare"}\n' \
    "$directory/runtime" >"$directory/engine.json"
kill -HUP "$(cat /run/docker.pid)"
