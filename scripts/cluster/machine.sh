#!/usr/bin/env bash
# The first process of a machine, which `unshare` starts in namespaces of its own. It plugs the
# machine into the switch, makes the mounts that a machine has, starts the container engine, and
# ends with it. Whatever ends this process ends everything on the machine.
# Usage: machine.sh DIRECTORY CONTROL_GROUP SWITCH ADDRESS; the directory has the machine's name.
set -euo pipefail
directory=$1 group=$2 switch=$3 address=$4
name=${directory##*/}
exec </dev/null >>"$directory/engine.log" 2>&1

# One that ended before leaves its plug for a moment.
ip -n "$switch" link delete "$name" 2>/dev/null || true
ip link add eth0 type veth peer name "$name" netns "$switch"
ip -n "$switch" link set "$name" master switch up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip link set lo up
hostname "$name"

. "${BASH_SOURCE[0]%/*}/let_go.sh"

# A /run of its own. Uids of workspaces are the whole kernel's, so their locks are the host's.
locks=/run/paddock-uids.lock
[ -e "$locks" ] || install -m 0600 /dev/null "$locks"
mkdir -p "$directory/run"
mount -t tmpfs -o mode=0755,nosuid,nodev machine "$directory/run"
touch "$directory/run/${locks##*/}"
mount --bind "$locks" "$directory/run/${locks##*/}"
mount --rbind "$directory/run" /run
umount --lazy "$directory/run"

# Processes and network devices of its own namespaces, beside the host's control groups.
mount -t proc -o nosuid,nodev,noexec proc /proc
mkdir /run/groups
mount --rbind /sys/fs/cgroup /run/groups
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount --rbind /run/groups /sys/fs/cgroup
umount --lazy /run/groups
# As service managers do: what is mounted in the state directory appears in sandboxes.
mount --make-rshared /

dockerd --config-file "$directory/engine.json" --host "unix://$directory/engine.sock" \
    --data-root "$directory/engine" --exec-root /run/docker --pidfile /run/docker.pid \
    --cgroup-parent "$group" --log-level warn &
# bash reaps everything that has lost its parent meanwhile.
wait $!
