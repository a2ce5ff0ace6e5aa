"""A part of a command's output as text, which ends with a whole character. Pure."""

import codecs
from collections.abc import Iterable

from orchestrator.host.link.chunks import Chunk

# Bytes of one page.
MOST_PAGE = 32 * 1024


def page_text(chunks: Iterable[Chunk], position: int, end: int) -> tuple[str, int]:
    """The text from a byte on, both streams in their order, and the byte at which to continue.

    `end` is where the chunks end; of more than `MOST_PAGE`, the rest is for the next page.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts, left = list[str](), MOST_PAGE
    for _, offset, data in chunks:
        if offset > position:
            texts.append(
                f"{decoder.decode(b'', True)}\n[{offset - position} bytes were not kept]\n"
            )
        part = data[:left]
        texts.append(decoder.decode(part))
        left -= len(part)
        position = offset + len(part)
        if not left:
            break
    waiting = len(decoder.getstate()[0])
    if waiting and position >= end:
        # Nothing follows that could complete it.
        return "".join([*texts, decoder.decode(b"", True)]), position
    return "".join(texts), position - waiting
