"""What a broker needs of the profile of a session that may read a manifest's files only."""

from typing import NamedTuple

from sandbox_agent.decide.denials import Denials
from sandbox_agent.decide.manifest import ReadManifest


class Reads(NamedTuple):
    """What the brokers of a session enforce that may read its manifest's files only.

    `ruleset` is Landlock's for a broker and its guard: that of the commands, and the right to use
    /proc. `code` is the filter that reports the commands' calls. `recorded`: the agent records
    executions, and lets them go on. `signals`: it answers those that are reported. Without
    `truncation`, brokers refuse what Landlock does not.
    """

    ruleset: int | None
    code: bytes
    manifest: ReadManifest
    denials: Denials
    enforced: bool
    recorded: bool
    signals: bool = False
    truncation: bool = True
