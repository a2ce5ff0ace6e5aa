"""Limits a sandbox to its level's rates. Each call either puts its rate in force or raises.

Docker sets the disk's rates; with control groups of version 1, a helper completes them. Those of
the network are token buckets at both ends of the container's link: each end delays what it sends.
"""

import docker

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import Rates
from orchestrator.host.engine.docker_helper import network_helper, run_helper
from orchestrator.host.node.throttle import root_group

# Sets the device's rates in the root group, and moves the sandbox's processes to that group. The
# next pass finds the processes that they start meanwhile.
DISK_SCRIPT = """\
set -eu
device=$1 read=$2 write=$3 pid=$4
cd /blkio
echo "$device $read" >blkio.throttle.read_bps_device
echo "$device $write" >blkio.throttle.write_bps_device
for wanted in "read $read" "write $write"; do
    set -- $wanted
    [ "$2" = 0 ] || grep -qx "$device $2" "blkio.throttle.$1_bps_device"
done
[ "$pid" != 0 ] || exit 0
group=$(sed -n 's/^[0-9]*:\\([^:]*,\\)*blkio\\(,[^:]*\\)*://p' "/proc/$pid/cgroup")
[ "$group" != / ] || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(cat ".$group/cgroup.procs")
    [ -n "$pids" ] || exit 0
    for one in $pids; do
        echo "$one" >cgroup.procs || :
    done
done
echo "processes stay in $group" >&2
exit 1
"""
# Uses the kernel's `struct tcmsg` and `struct tc_tbf_qopt`, because no program of the image speaks
# netlink.
BUCKET_SCRIPT = """\
import os, socket, struct, sys

NEW_LINK, GET_LINK, NEW_QDISC, ERROR = 16, 18, 36, 2
REQUEST, ACK, REPLACE, CREATE = 1, 4, 0x100, 0x400
ROOT, LINK_NAME, LINK_PEER = 0xFFFFFFFF, 3, 5

def attribute(kind, data):
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

def ask(kind, flags, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as peer:
        peer.settimeout(10)
        peer.bind((0, 0))
        peer.send(struct.pack("IHHII", 16 + len(body), kind, REQUEST | flags, 1, 0) + body)
        answer = peer.recv(1 << 16)
    if struct.unpack_from("H", answer, 4)[0] == ERROR:
        code = -struct.unpack_from("i", answer, 16)[0]
        if code:
            sys.exit(f"the kernel refuses: {os.strerror(code)}")
    return answer

def peer_of(index):
    answer, at = ask(GET_LINK, 0, struct.pack("BBHiII", 0, 0, 0, index, 0, 0)), 32
    while at < len(answer):
        length, kind = struct.unpack_from("HH", answer, at)
        if kind == LINK_PEER:
            return struct.unpack_from("I", answer, at + 4)[0]
        at += (length + 3) & ~3
    sys.exit("the link has no other end")

def hold(index, rate):
    burst = max(16384, rate // 50)
    waiting = burst + max(65536, rate // 5)
    spec = struct.pack("BBHhHI", 0, 1, 0, 0, 0, rate)
    bucket = attribute(1, spec + bytes(12) + struct.pack("III", waiting, 0, 0))
    options = bucket + attribute(6, struct.pack("I", burst))
    body = struct.pack("BBHiIII", 0, 0, 0, index, 0x10000, ROOT, 0)
    ask(NEW_QDISC, ACK | REPLACE | CREATE, body + attribute(1, b"tbf\\0") + attribute(2, options))

where, rate = sys.argv[1], int(sys.argv[2])
if where == "inside":
    index = socket.if_nametoindex("eth0")
    print(peer_of(index))
elif where == "try":
    index = socket.if_nametoindex("lo")
else:
    index = int(where)
    name = socket.if_indextoname(index)
    if os.path.basename(os.readlink(f"/sys/class/net/{name}/master")) != sys.argv[3]:
        sys.exit(f"{name} is not of {sys.argv[3]}")
if rate:
    hold(index, rate)
"""


def hold_device(
    client: docker.APIClient,
    image: str,
    instance: str,
    device: str,
    rates: Rates,
    container_id: str | None,
) -> None:
    """Applies the disk's rates to all use of a device, `major:minor`, or lifts them; cgroup v1.

    Afterwards, the container's processes are counted together with the kernel's own. Raises:
    EngineUnavailableError, docker's errors, OSError.
    """
    root = root_group()
    if root is None:
        raise EngineUnavailableError("control groups have no root group of block devices")
    pid = client.inspect_container(container_id)["State"]["Pid"] if container_id else 0
    arguments = (device, str(rates.disk_read or 0), str(rates.disk_write or 0), str(pid))
    config = network_helper(image, instance, "none", DISK_SCRIPT, *arguments, capabilities=())
    config["HostConfig"] |= {
        "PidMode": "host",
        "CgroupnsMode": "host",
        "Mounts": [{"Type": "bind", "Source": str(root), "Target": "/blkio", "ReadOnly": False}],
    }
    name = f"paddock-disk-{instance}-{device.replace(':', '-')}"
    run_helper(client, name, config, "the rates of the disk could not be set")


def hold_link(
    client: docker.APIClient,
    image: str,
    instance: str,
    container_id: str,
    bridge: str,
    rates: Rates,
) -> None:
    """Applies the network's rates to a running container's link.

    Raises: EngineUnavailableError, docker's errors.
    """
    own = f"container:{container_id}"
    name = f"paddock-rate-{instance}-{container_id[:12]}"
    peer = _bucket(client, image, instance, name, own, "inside", str(rates.network_send or 0))
    if rates.network_receive is not None:
        if not peer.isdecimal():
            raise EngineUnavailableError("the sandbox's link could not be found")
        rate = str(rates.network_receive)
        _bucket(client, image, instance, name, "host", peer, rate, bridge)


def try_link(client: docker.APIClient, image: str, instance: str) -> None:
    """Raises EngineUnavailableError if this kernel has no token buckets, and docker's errors."""
    _bucket(client, image, instance, f"paddock-rate-{instance}", "none", "try", "1000000")


def _bucket(
    client: docker.APIClient, image: str, instance: str, name: str, network: str, *arguments: str
) -> str:
    config = network_helper(image, instance, network, "", *arguments)
    config["Entrypoint"] = ["/usr/bin/python3", "-I", "-S", "-c", BUCKET_SCRIPT, *arguments]
    return run_helper(client, name, config, "the rates of the network could not be set")
