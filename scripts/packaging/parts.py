"""Writes the list of a release's parts in SPDX, and validates it.

It runs in an environment that has spdx-tools alone: `python -m scripts.packaging.release` makes
that. Its input is JSON: `{"name", "version", "created", "lock"}`, with the text of the lock file.
"""

import json
import re
import sys
from datetime import UTC, datetime
from typing import Any

from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from spdx_tools.spdx.writer.write_anything import write_file

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def document(given: dict[str, Any]) -> Document:
    """The release, and all that its server is installed with, by exact version."""
    name, version = given["name"], given["version"]
    created = datetime.fromisoformat(given["created"]).astimezone(UTC).replace(tzinfo=None)
    information = CreationInfo(
        spdx_version="SPDX-2.3",
        spdx_id="SPDXRef-DOCUMENT",
        name=f"{name}-{version}",
        document_namespace=f"https://spdx.org/spdxdocs/{name}-{version}-{created:%Y%m%d%H%M%S}",
        creators=[Actor(ActorType.TOOL, "spdx-tools")],
        created=created,
    )
    whole = _package("SPDXRef-release", name, version, [])
    parts = [
        _package(f"SPDXRef-{_id(part)}", part, number, hashes)
        for part, number, hashes in locked(given["lock"])
    ]
    describes = Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, "SPDXRef-release")
    contains = [
        Relationship("SPDXRef-release", RelationshipType.DEPENDS_ON, part.spdx_id) for part in parts
    ]
    return Document(information, packages=[whole, *parts], relationships=[describes, *contains])


def locked(text: str) -> list[tuple[str, str, list[str]]]:
    """Names, versions and digests of a lock file."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if (pinned := _PINNED.match(line)) is not None:
            found.append((pinned[1], pinned[2], []))
        if found:
            found[-1][2].extend(_HASH.findall(line))
    return found


def _package(spdx_id: str, name: str, version: str, hashes: list[str]) -> Package:
    # Of several files of a version, any may be the installed one.
    checksums = [Checksum(ChecksumAlgorithm.SHA256, hashes[0])] if len(hashes) == 1 else []
    where = ExternalPackageRef(
        ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", f"pkg:pypi/{name}@{version}"
    )
    return Package(
        spdx_id=spdx_id,
        name=name,
        version=version,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=checksums,
        external_references=[where],
    )


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def main() -> int:
    """Reads the input, and writes the list to the file that the argument names."""
    made = document(json.load(sys.stdin))
    faults = validate_full_spdx_document(made)
    for fault in faults:
        print(fault.validation_message, file=sys.stderr)
    if faults:
        return 1
    write_file(made, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
