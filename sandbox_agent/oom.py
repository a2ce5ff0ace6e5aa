"""How many processes the kernel has killed because the sandbox's memory was used up."""

# As control groups of version 2 tell it, and of version 1.
_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_NAME = b"oom_kill"


def kills() -> int:
    """The count since the sandbox began; 0 where the kernel does not tell."""
    for path in _COUNTERS:
        try:
            with open(path, "rb", buffering=0) as file:
                return parse(file.read(4096) or b"")
        except OSError:
            continue
    return 0


def parse(text: bytes) -> int:
    """The count in a counter's lines of `name number`; 0 where there is none."""
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == _NAME and number.isdigit():
            return int(number)
    return 0
