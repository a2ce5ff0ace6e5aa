"""States of a tool's session, by prompts and commands."""

from orchestrator.rules.tools.catalog import read_catalog
from orchestrator.rules.tools.session_loader import load_manifest
from orchestrator.rules.tools.states import PromptState, infer_state, next_state
from tests.support.manifests import PSQL, parse, with_commands

MSF = with_commands(
    """
[session.states]
'msf6 > ' = "ready"
'msf6 \\S+\\(.+\\) > ' = "module_loaded"
'.*' = "odd"

[session.commands.set_rhosts]
pattern = '^set RHOSTS .+$'
state = "configured"

[session.commands.show]
pattern = '^show .+$'
"""
)


def test_without_a_table_a_prompt_is_ready_or_an_error() -> None:
    manifest = load_manifest(PSQL)
    assert infer_state(manifest, "appdb=> ") == "ready"
    assert infer_state(manifest, "appdb=# ") == "ready"
    assert infer_state(manifest, "(Error) appdb=> ") == "error"


def test_the_first_pattern_that_matches_the_whole_prompt_counts() -> None:
    assert infer_state(MSF, "msf6 > ") == "ready"
    assert infer_state(MSF, "msf6 exploit(ms17_010) > ") == "module_loaded"
    assert infer_state(MSF, "msf6 >") == "odd"


def test_a_state_that_the_schema_lacks_is_an_error() -> None:
    manifest = parse(PSQL.read_text().replace('["ready", ', '["idle", '))
    assert infer_state(manifest, "appdb=> ") == "error"


def test_a_command_sets_the_state_while_the_prompt_stays() -> None:
    prompt = "msf6 exploit(x) > "
    loaded = PromptState(prompt, infer_state(MSF, prompt))
    configured = next_state(MSF, loaded, prompt, "set_rhosts")
    assert configured == "configured"
    still = next_state(MSF, PromptState(prompt, configured), prompt, "show")
    assert still == "configured"
    back = next_state(MSF, PromptState(prompt, still), "msf6 > ", "show")
    assert back == "ready"


def test_a_new_prompt_shows_the_state_whatever_the_command_sets() -> None:
    assert next_state(MSF, None, "msf6 > ", None) == "ready"
    assert next_state(MSF, None, "msf6 > ", "set_rhosts") == "ready"
    before = PromptState("msf6 exploit(x) > ", "module_loaded")
    assert next_state(MSF, before, "msf6 > ", "set_rhosts") == "ready"


def test_the_shipped_psql_knows_transactions() -> None:
    manifest = read_catalog(None).catalog["psql"]
    states = {prompt: infer_state(manifest, prompt) for prompt in
              ("appdb=> ", "appdb=# ", "app-2.db=*> ", "appdb=*# ", "appdb=!> ")}  # fmt: skip
    assert list(states.values()) == ["ready", "ready", "transaction", "transaction", "error"]
    assert all(manifest.ready_pattern.matches(prompt) for prompt in states)
    assert not any(map(manifest.ready_pattern.matches, ("appdb-> ", "appdb'> ", "appdb(> ")))
