"""The tests that are run on stock systems, by what they show.

The first tests of each topic are the short form, a third of all.
"""

from collections.abc import Collection
from typing import NamedTuple


class Topic(NamedTuple):
    """What tests show; `first` are those of the short form."""

    title: str
    first: tuple[str, ...]
    then: tuple[str, ...] = ()


_SECURITY, _INTEGRATION = "tests/security", "tests/integration"


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.py::test_{name}" for name in names)


TOPICS = (
    Topic(
        "confinement",
        _of(
            f"{_SECURITY}/test_confinement",
            "a_command_has_no_privileges",
            "mounts_are_as_the_level_says",
            "nothing_of_ones_own_is_executed",
            "without_a_network_nothing_is_reached",
        ),
        (
            *_of(f"{_SECURITY}/test_system_calls", "denied_call"),
            *_of(f"{_SECURITY}/test_reading", "file_of_another_session"),
        ),
    ),
    # By this kernel's means, then as if it had the least that any level needs.
    Topic(
        "attacks",
        (
            *_of(f"{_SECURITY}/test_execution", "code_in_shared_memory", "program_of_ones_own"),
            *_of(f"{_SECURITY}/test_writing", "file_of_the_image"),
        ),
        (
            *_of(f"{_SECURITY}/test_system_calls", "memory_without_a_name"),
            *_of(f"{_SECURITY}/test_execution", "program_in_memory", "code_of_ones_own"),
            *_of(f"{_SECURITY}/test_execution", "code_in_a_file", "own_code_overwritten"),
            *_of(f"{_SECURITY}/test_reading", "secret_of_the_image"),
            *_of(f"{_SECURITY}/test_resources", "daemons", "fork_bomb"),
            *_of(
                f"{_SECURITY}/test_older_kernels",
                *("code_in_shared_memory", "code_in_a_file", "code_of_ones_own"),
                *("own_code_overwritten", "program_of_ones_own", "secret_of_the_image"),
                *("file_of_the_image", "no_file_that_may_not_be_written_is_truncated"),
                *("commands_read_the_files_of_the_pack_only", "daemons", "fork_bomb"),
            ),
        ),
    ),
    Topic(
        "signals",
        (
            *_of(f"{_SECURITY}/test_isolation", "a_command_is_out_of_reach_of_another"),
            *_of(f"{_INTEGRATION}/test_commands", "a_signal_reaches_the_process_group"),
        ),
        (
            *_of(f"{_SECURITY}/test_processes", "another_process", "kill_all"),
            *_of(f"{_SECURITY}/test_isolation", "a_guard_is_out_of_reach_of_every_command"),
        ),
    ),
    Topic(
        "ending of trees",
        _of(
            f"{_INTEGRATION}/test_process_tree",
            "daemons_end_with_their_command",
            "leftovers_that_fork_all_the_time_are_ended",
        ),
        (
            *_of(f"{_INTEGRATION}/test_process_tree", "a_timeout_ends_a_tree_that_ignores_it"),
            *_of(f"{_SECURITY}/test_resource_abuse", "a_timeout_ends_a_fork_bomb"),
        ),
    ),
    Topic(
        "the record",
        _of(f"{_INTEGRATION}/test_commands", "every_command_is_on_record_before_and_after"),
        _of(f"{_SECURITY}/test_processes", "nothing_runs_unrecorded"),
    ),
    Topic(
        "quotas and limits",
        _of(f"{_INTEGRATION}/test_quota", "the_limit_is_hard"),
        (
            *_of(f"{_INTEGRATION}/test_quota", "a_level_change_moves_the_limit"),
            *_of(f"{_SECURITY}/test_resource_abuse", "a_memory_hog_ends_and_its_session_goes_on"),
            *_of(f"{_SECURITY}/test_confinement", "limits_are_as_the_engine_reports_them"),
        ),
    ),
    Topic(
        "rates",
        (),
        _of(
            f"{_INTEGRATION}/test_rates",
            "writes_take_their_time",
            "the_network_takes_its_time_both_ways",
        ),
    ),
    Topic(
        "freezing",
        _of(f"{_INTEGRATION}/test_lifecycle", "a_paused_session_stands_still_and_goes_on"),
        _of(f"{_INTEGRATION}/test_stopping", "a_sandbox_s_first_process_is_known"),
    ),
    Topic(
        "staged changes",
        _of(f"{_INTEGRATION}/test_proposals", "file_operations_are_staged_as_a_whole"),
    ),
    Topic(
        "egress",
        _of(f"{_INTEGRATION}/test_egress", "curl_reaches_an_allowed_host"),
        (
            *_of(f"{_INTEGRATION}/test_egress", "the_record_names_the_program"),
            *_of(
                f"{_INTEGRATION}/test_open_network",
                "the_host_and_link_local_addresses_are_out_of_reach",
            ),
        ),
    ),
    Topic(
        "context packs",
        (),
        _of(
            f"{_SECURITY}/test_context_packs",
            "commands_read_the_files_of_the_pack_only",
            "a_program_that_misses_ends_the_session",
        ),
    ),
    Topic(
        "terminals",
        (),
        _of(
            f"{_INTEGRATION}/test_terminals",
            "a_line_and_its_answer",
            "a_tool_is_confined_but_for_what_it_needs",
            "who_hides_from_the_agent_is_not_at_its_prompt",
        ),
    ),
    Topic(
        "suspension",
        (),
        _of(
            f"{_INTEGRATION}/test_suspension",
            "it_gets_a_sandbox_again_with_its_files_level_and_uid",
        ),
    ),
    Topic(
        "restart",
        _of(f"{_INTEGRATION}/test_recovery", "sessions_and_running_commands_go_on"),
        (
            *_of(
                f"{_INTEGRATION}/test_recovery",
                "a_sandbox_that_died_meanwhile_is_a_crash_with_its_gap",
            ),
            *_of(
                f"{_INTEGRATION}/test_quota",
                "after_a_restart_of_the_host_kept_workspaces_are_mounted",
            ),
        ),
    ),
    Topic(
        "backup",
        (),
        _of(f"{_INTEGRATION}/test_backup_workspaces", "files_owners_and_modes_come_back"),
    ),
)


def named(*, short: bool, topics: Collection[str] = ()) -> list[str]:
    """The tests' names for pytest; of these topics only, or of all if there are none."""
    chosen = [topic for topic in TOPICS if not topics or topic.title in topics]
    listed = (topic.first if short else topic.first + topic.then for topic in chosen)
    return [test for topic in listed for test in topic]


def topic_of(test: str) -> str | None:
    """The title of the topic with that test; parameters in brackets don't count."""
    name = test.partition("[")[0]
    return next((topic.title for topic in TOPICS if name in topic.first + topic.then), None)
