"""Files as the API shows them."""

from typing import Any

from orchestrator.work.files.file_entries import FileEntry, Listing
from paddock.contract.files import FileList


def file_entry(entry: FileEntry) -> dict[str, Any]:
    """The members of an entry of a list."""
    members = entry._asdict()
    del members["version"], members["attributes"]
    return members


def file_list(listing: Listing) -> FileList:
    """What a directory holds, read at once: there may be thousands of entries."""
    items = [file_entry(entry) for entry in listing.entries]
    shown = {"items": items, "next": None, "truncated": listing.truncated}
    return FileList.model_validate(shown)
