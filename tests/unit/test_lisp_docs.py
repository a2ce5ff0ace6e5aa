"""The examples of the Lisp in the documents give the values that they show."""

import re

import pytest

from tests.support.documents import Block, blocks
from tests.support.lisp import returning, run, value
from tests.support.server import ROOT

EXAMPLES = [
    block for block in blocks((ROOT / "docs" / "turns.md").read_text()) if block.language == "lisp"
]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"line {block.line}")
def test_examples_of_the_document(block: Block) -> None:
    environment = ""
    *examples, rest = re.split(r"; => (.+)\n?", block.text)
    assert examples
    assert not rest.strip()
    for program, shown in zip(examples[::2], examples[1::2], strict=True):
        ran = run(program, environment=environment)
        environment = ran.program.definitions().text
        assert value(f"(equal? (quote {shown}) (world.read 1))", returning(ran.value))
