"""Files as the API shows them."""

from orchestrator.work.files.file_entries import Listing
from paddock.contract.files import FileList


def file_list(listing: Listing) -> FileList:
    """What a directory holds, read at once: there may be thousands of entries."""
    items = [entry._asdict() for entry in listing.entries]
    shown = {"items": items, "next": None, "truncated": listing.truncated}
    return FileList.model_validate(shown)
