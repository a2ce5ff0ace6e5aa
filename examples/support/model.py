"""Two ways to ask a language model: on the host's side, and by a turn of the session."""

from collections.abc import Callable

from paddock import PaddockError, Session, Sync

# Asks the model, for a session, and returns its answer to the prompt.
Ask = Callable[[Session[Sync], str], str]

# What the scripted model answers, in order; each answer is a turn's program.
ANSWERS = (
    # It does not guess: it asks for what it has not seen.
    '(needs \'needs-evidence "the output of the failing test")',
    # It tries to change the test instead of the source, which the policy does not permit.
    '(world.write "tests/test_parser.py" "def test_split_arg_string(): pass")',
    # It corrects the source.
    """\
(define path "src/click/parser.py")
(define wrong "out.append(lex.state)")
(world.write path (replace (world.read path) wrong "out.append(lex.token)"))""",
    # It has seen that the tests pass.
    "'done",
)


def scripted() -> Ask:
    """A model that gives its answers in order, whatever the prompt is, and then repeats the last.

    Like a host that calls a model itself, it reports the tokens: it guesses four characters each.
    """
    answers = iter(ANSWERS)

    def ask(session: Session[Sync], prompt: str) -> str:
        answer = next(answers, ANSWERS[-1])
        session.report_usage(tokens=(len(prompt) + len(answer)) // 4)
        return answer

    return ask


def governed(name: str) -> Ask:
    """One of the control plane's models, which a turn asks; its tokens are counted there."""

    def ask(session: Session[Sync], prompt: str) -> str:
        call = ("llm.complete", {"prompt": prompt, "model": name})
        outcome = session.turns.run(operations=[call]).outcome
        if outcome is None or outcome.tag != "ok":
            raise PaddockError(f"the model did not answer: {outcome and outcome.message}")
        return str(outcome.value[0])

    return ask
