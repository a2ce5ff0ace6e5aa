"""Results of a virtual machine's job: read from its lines, judged, stored, shown as a table."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.hosts.suite import TOPICS, topic_of

DESCRIPTION = ("engine", "landlock")
# The step that examines the sessions of before the restart.
RESTARTED = "sessions after the restart"
_HEALTHY = ("ok", "warning")


@dataclass
class Result:
    """What one machine's job said; `complete` if it said everything."""

    title: str
    run: str = ""  # when and how, for people
    facts: dict[str, str] = field(default_factory=dict)  # system, kernel, python, uptime
    steps: dict[str, int] = field(default_factory=dict)  # exit statuses by the step's name
    seconds: dict[str, int] = field(default_factory=dict)  # by the step's name
    checks: dict[str, list[str]] = field(default_factory=dict)  # the doctor's: status, detail
    tests: dict[str, str] = field(default_factory=dict)  # outcomes: passed, failed, skipped
    restarts: int = 0  # restarts of the machine that the job has announced
    complete: bool = False

    def take(self, line: str) -> str | None:
        """Takes a line of the job, and returns it for people; None if there is nothing to say.

        Lines that are no JSON of the job are passed over: a serial port may carry anything.
        """
        try:
            said = json.loads(line)
            return self._take(said["kind"], said)
        except (ValueError, KeyError, TypeError):
            return None

    def _take(self, kind: str, said: Mapping[str, Any]) -> str | None:
        if kind == "facts":
            self.facts = {name: str(value) for name, value in said.items() if name != "kind"}
            return f"{said['system']}, kernel {said['kernel']}, up for {said['uptime']} s"
        if kind == "step":
            self.steps[said["name"]] = int(said["status"])
            self.seconds[said["name"]] = int(said["seconds"])
            return f"{said['name']}: exit status {said['status']} after {said['seconds']} s"
        if kind == "doctor":
            self.checks = {
                check["name"]: [check["status"], check["detail"]] for check in said["checks"]
            }
            faulty = [name for name, (status, _) in self.checks.items() if status not in _HEALTHY]
            return f"doctor: {', '.join(faulty) or 'well'}"
        if kind == "test":
            line = f"{said['outcome']}: {said['id']} ({said['seconds']} s) {said.get('why', '')}"
            self.tests[said["id"]] = str(said["outcome"])
            return line.rstrip()
        if kind == "restart":
            self.restarts += 1
            return "the machine restarts while sessions are at work"
        self.complete = self.complete or kind == "end"
        return None

    def after(self, earlier: "Result") -> "Result":
        """This run with what only the earlier one said; of a run cut short, its tests only."""
        run = f"{self.run}; before: {earlier.run}"
        tests = earlier.tests | self.tests
        if not self.complete:
            return replace(earlier, run=run, tests=tests) if self.tests else earlier
        steps, seconds = earlier.steps | self.steps, earlier.seconds | self.seconds
        return replace(self, run=run, steps=steps, seconds=seconds, tests=tests)

    def faults(self) -> list[str]:
        """Everything that isn't as it must be; empty if the system is well."""
        found = [] if self.complete else ["the job did not come to its end"]
        found += [f"{name}: exit status {status}" for name, status in self.steps.items() if status]
        found += [] if self.checks else ["the doctor said nothing"]
        found += [
            f"doctor: {name}: {detail}"
            for name, (status, detail) in self.checks.items()
            if status not in _HEALTHY
        ]
        return found + [f"{test}: {out}" for test, out in self.tests.items() if out != "passed"]


def kept(
    known: Mapping[str, Result], found: Mapping[str, Result], *, add: bool
) -> dict[str, Result]:
    """The new results that are worth storing: what was cut short replaces no other result.

    `add`: only some topics were tested, so the known outcomes of all others stay.
    """
    if not add:
        return {name: it for name, it in found.items() if it.complete or name not in known}
    return {
        name: result.after(known[name]) if name in known else result
        for name, result in found.items()
    }


def load(path: Path) -> dict[str, Result]:
    """The stored results by the system's name."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result(**members) for name, members in stored.items()}


def save(path: Path, results: Mapping[str, Result]) -> None:
    """Stores the results."""
    members = {name: asdict(result) for name, result in sorted(results.items())}
    text = json.dumps(members, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def table(results: Sequence[Result]) -> list[list[str]]:
    """A row for each fact and topic, a column for each system; titles are in the first row."""
    rows = [["", *(result.title for result in results)]]
    rows.append(["run", *(_run(result) for result in results)])
    rows.append(["kernel", *(_said(result.facts.get("kernel")) for result in results)])
    for name in DESCRIPTION:
        rows.append([name, *(_said(_detail(result, name)) for result in results)])
    rows.append(["`make run`", *(_exit(result, "make run") for result in results)])
    rows.append(["`paddock doctor`", *(_doctor(result) for result in results)])
    rows.append(["reboot", *(_exit(result, RESTARTED) for result in results)])
    for topic in TOPICS:
        rows.append([topic.title, *(_passed(result, topic.title) for result in results)])
    return rows


def _detail(result: Result, name: str) -> str | None:
    return result.checks[name][1] if name in result.checks else None


def _run(result: Result) -> str:
    return _said(result.run) + ("" if result.complete or not result.run else ", cut short")


def _said(text: str | None) -> str:
    return text or "?"


def _exit(result: Result, name: str) -> str:
    status = result.steps.get(name)
    if status is None:
        return "?"
    return "well" if status == 0 else f"exit status {status}"


def _doctor(result: Result) -> str:
    faulty = [name for name, (status, _) in result.checks.items() if status not in _HEALTHY]
    if not result.checks:
        return "?"
    return f"refuses {', '.join(faulty)}" if faulty else "well"


def _passed(result: Result, topic: str) -> str:
    outcomes = [out for test, out in result.tests.items() if topic_of(test) == topic]
    return f"{outcomes.count('passed')} of {len(outcomes)}" if outcomes else "?"


def shown(rows: Iterable[Sequence[str]]) -> str:
    """The table for a terminal."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
