"""Texts that PostgreSQL can store. Pure."""


def plain(text: str) -> str:
    """The text without what no column can have: the zero character, and half surrogate pairs.

    One such text would otherwise hold back all later messages of a node.
    """
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
