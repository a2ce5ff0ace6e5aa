"""What is added up over nodes: groups of denials, and what sessions and machines use. No I/O."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from gateway.faces.asking import Answer

# As one machine shows: so many groups.
MOST_GROUPS = 50
_SIZES = ("cpus", "memory_bytes", "disk_bytes")
_USED = ("memory_used", "disk_used")


def is_denials(answer: Answer) -> bool:
    """Whether it is an answer to `GET /api/audit/denials`."""
    items = answer.get("items")
    return isinstance(items, list) and all(
        isinstance(item, dict) and type(item.get("times")) is int for item in items
    )


def all_denials(answers: Mapping[str, Answer]) -> list[Any]:
    """The largest groups of all nodes. A session's group is on its node only."""
    groups = [group for _, answer in sorted(answers.items()) for group in answer["items"]]
    return sorted(groups, key=lambda group: -group["times"])[:MOST_GROUPS]


def is_usage(answer: Answer) -> bool:
    """Whether it is an answer to `GET /api/usage`."""
    host = answer.get("host")
    numbers = [answer.get("round"), *([] if host is None else [host])]
    return (
        type(numbers[0]) is int
        and isinstance(answer.get("interval"), int | float)
        and isinstance(answer.get("items"), list)
        and all(isinstance(item, dict) and _is_samples(item) for item in answer["items"])
        and (host is None or (isinstance(host, dict) and _is_host(host)))
    )


def _is_samples(item: Mapping[str, Any]) -> bool:
    return all(isinstance(item.get(name), list) for name in ("cpu_percent", "memory_bytes"))


def _is_host(host: Mapping[str, Any]) -> bool:
    samples = [host.get(name) for name in ("cpu_percent", *_USED)]
    sizes = [host.get(name) for name in _SIZES]
    return all(type(size) is int for size in sizes) and all(
        isinstance(each, list) and all(isinstance(value, int | float) for value in each)
        for each in samples
    )


def all_usage(answers: Mapping[str, Answer], now: float, after: int) -> Answer:
    """What all nodes use, in samples that end now.

    Each node takes samples of its own, so those of one place in the lists are up to an interval
    apart. `now` is in seconds since 1970: the rounds of all gateways count intervals by it. Only
    samples since the round `after` are returned.
    """
    interval = max((answer["interval"] for answer in answers.values()), default=10.0)
    this = int(now // interval)
    new = max(0, this - after)
    times = [answer["sampled_at"] for answer in answers.values() if answer.get("sampled_at")]
    hosts = [answer["host"] for answer in answers.values() if answer.get("host") is not None]
    found = [item for _, answer in sorted(answers.items()) for item in answer["items"]]
    return {
        "round": this,
        "sampled_at": max(times, default=None),
        "interval": interval,
        "host": _sum(hosts, new) if hosts else None,
        "items": [_latest(item, new) for item in found],
        "next": None,
    }


def _latest(item: Mapping[str, Any], new: int) -> dict[str, Any]:
    samples = {name: _last(item[name], new) for name in ("cpu_percent", "memory_bytes")}
    return {**item, **samples}


def _last(values: Sequence[Any], new: int) -> list[Any]:
    return list(values[max(0, len(values) - new) :])


def _sum(hosts: Sequence[Mapping[str, Any]], new: int) -> dict[str, Any]:
    """All hosts as one: sizes and amounts added, percentages weighted by cores."""
    cores = sum(host["cpus"] for host in hosts)
    shares = [[percent * host["cpus"] for percent in host["cpu_percent"]] for host in hosts]
    busy = [round(each / max(1, cores), 1) for each in _added(shares)]
    return {
        **{name: sum(host[name] for host in hosts) for name in _SIZES},
        "cpu_percent": _last(busy, new),
        **{name: _last(_added([host[name] for host in hosts]), new) for name in _USED},
    }


def _added(lists: Sequence[Sequence[float]]) -> list[Any]:
    """The sums of the values at the same place from the end."""
    columns = zip_longest(*(reversed(each) for each in lists), fillvalue=0)
    return [sum(column) for column in columns][::-1]
