"""Proposals as the API shows them."""

from api.shape.objects import members
from orchestrator.work.proposals import listing
from orchestrator.work.proposals.proposals import Expected
from paddock.contract.proposals import (
    CommitBody,
    Committed,
    Proposal,
    ProposalCounts,
    Proposals,
    RefusedProposal,
)

_MOST_PATHS = 1000


def page(shown: listing.ProposalPage) -> Proposals:
    """A page."""
    return Proposals(
        items=[_proposal(each) for each in shown.items],
        next=shown.items[-1].ref if shown.more and shown.items else None,
        truncated=shown.more,
        refused=[RefusedProposal(ref=each.ref, reason=each.reason) for each in shown.refused],
        counts=ProposalCounts(**shown.counts.model_dump()),
    )


def expected(body: CommitBody) -> Expected | None:
    """What the host expects to commit."""
    if body.expected is None:
        return None
    return {
        ref: (each.fingerprint, None if each.mode is None else int(each.mode, 8))
        for ref, each in body.expected.items()
    }


def committed(done: listing.Prepared | None) -> Committed:
    """What was committed; nothing if there was nothing."""
    if done is None:
        return Committed(write=0, delete=0, paths=[])
    return Committed(
        write=done.counts.write, delete=done.counts.delete, paths=done.refs[:_MOST_PATHS]
    )


def _proposal(shown: listing.Proposal) -> Proposal:
    return Proposal(
        **members(Proposal, shown, mode=_octal(shown.mode), old_mode=_octal(shown.old_mode))
    )


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode & 0o7777:04o}"
