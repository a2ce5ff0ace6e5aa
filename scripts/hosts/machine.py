"""The virtual machine: QEMU's command line, and one run from the boot to the end of the job."""

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
    """What is booted: the system's disk, which stays as it is, and the disk with the project."""

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
        # A panic ends QEMU at once, as -no-reboot says.
        *("-append", "root=/dev/vda rw console=ttyS0 panic=-1"),
        # What is written to the system's disk is forgotten, so that the next run finds it stock.
        *("-drive", _drive(machine.system_disk, snapshot=True)),
        *("-drive", _drive(machine.project_disk, snapshot=False)),
        *("-netdev", network, "-device", "virtio-net-pci,netdev=net"),
        *("-device", "virtio-rng-pci"),
        *("-chardev", f"file,id=console,path={_text(machine.console)}"),
        *("-serial", "chardev:console", "-serial", "stdio"),
    ]


def _drive(path: Path, *, snapshot: bool) -> str:
    kind = "if=virtio,format=raw,cache=unsafe,discard=unmap"
    return f"file={_text(path)},{kind},snapshot={'on' if snapshot else 'off'}"


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
