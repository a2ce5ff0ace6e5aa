"""The virtual machine: QEMU's command line, and one run from a boot to the machine's end."""

import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.hosts import mirror

# A machine takes hours of both cores: what people do meanwhile comes first.
NICE = ("nice", "-n", "3")
PROXY = ("10.0.2.100", 3128)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is booted: a copy of the system's disk, and the disk with the project."""

    kernel: Path
    initrd: Path
    system_disk: Path
    project_disk: Path
    console: Path  # the log of the guest's console
    memory_mib: int = 6144
    cpus: int = 2


def has_kvm(cpuinfo: str, device: Path = Path("/dev/kvm")) -> bool:
    """Whether this host's processor runs other kernels; a device alone does not say so."""
    flags = {
        word
        for line in cpuinfo.splitlines()
        if line.startswith("flags")
        for word in line.partition(":")[2].split()
    }
    return bool(flags & {"vmx", "svm"}) and device.exists()


def command(machine: Machine, mirrors: tuple[str, ...], *, kvm: bool) -> list[str]:
    """QEMU's arguments: the job's results are on standard output.

    The network reaches nothing but the proxy, and that only the mirrors.
    """
    fetch = shlex.join([sys.executable, "-S", str(Path(mirror.__file__)), *mirrors])
    host, port = PROXY
    network = f"user,id=net,restrict=on,guestfwd=tcp:{host}:{port}-cmd:{fetch.replace(',', ',,')}"
    accelerator = ["-accel", "kvm", "-cpu", "host"]
    emulator = ["-accel", "tcg,thread=multi", "-cpu", "max"]
    return [
        "qemu-system-x86_64",
        *(accelerator if kvm else emulator),
        *("-smp", str(machine.cpus), "-m", f"{machine.memory_mib}M"),
        *("-display", "none", "-monitor", "none", "-no-reboot"),
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initrd)),
        # Each restart ends QEMU, as -no-reboot says, also that after a panic.
        *("-append", "root=/dev/vda rw console=ttyS0 panic=-1"),
        *("-drive", _drive(machine.system_disk), "-drive", _drive(machine.project_disk)),
        *("-netdev", network, "-device", "virtio-net-pci,netdev=net"),
        *("-device", "virtio-rng-pci"),
        *("-chardev", f"file,id=console,append=on,path={_text(machine.console)}"),
        *("-serial", "chardev:console", "-serial", "stdio"),
    ]


def _drive(path: Path) -> str:
    return f"file={_text(path)},if=virtio,format=raw,cache=unsafe,discard=unmap"


def _text(path: Path) -> str:
    return str(path).replace(",", ",,")


@contextmanager
def running(arguments: list[str], seconds: float) -> Iterator[Iterator[str]]:
    """Runs QEMU and yields the lines of the job's results as they come; ends it after that time."""
    with subprocess.Popen(
        [*NICE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        deadline = threading.Timer(seconds, process.kill)
        deadline.start()
        try:
            yield iter(process.stdout or ())
        finally:
            process.kill()
            deadline.cancel()
