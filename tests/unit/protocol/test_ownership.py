"""Which root owns a location, by what is recorded there and noted at the root; without storage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.decide.ownership import OwnerRecord, Ownership, Recorded, RootIdentity, judge, next_epoch

ROOT = RootIdentity("/data/log", 1)
RECORD = OwnerRecord(1, 42, "d42", "/data/log")

records = st.builds(
    OwnerRecord,
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from(["d", "e"]),
    st.sampled_from(["/data/log", "/copy"]),
)
roots = st.builds(RootIdentity, st.sampled_from(["/data/log", "/copy"]), st.integers(0, 3))


def test_a_root_owns_what_it_recorded_and_noted() -> None:
    assert judge(ROOT, RECORD, RECORD) is Ownership.OWNED
    older = RECORD._replace(version=40, digest="d40")
    assert judge(ROOT, RECORD, older, Recorded.KNOWN) is Ownership.OWNED  # another process of this root recorded it


def test_each_sign_of_another_root_alone_takes_the_location_away() -> None:
    assert judge(ROOT, RECORD._replace(epoch=2), RECORD, Recorded.KNOWN) is Ownership.SUPERSEDED
    assert judge(ROOT, RECORD._replace(root="/other"), RECORD, Recorded.KNOWN) is Ownership.ANOTHER_ROOT
    assert judge(ROOT, RECORD, None, Recorded.KNOWN) is Ownership.NO_NOTE
    assert judge(ROOT, RECORD, RECORD._replace(epoch=0), Recorded.KNOWN) is Ownership.NO_NOTE
    assert judge(ROOT, RECORD._replace(digest="e"), RECORD) is Ownership.UNSEEN_COMMIT


def test_a_location_without_a_record_or_with_one_of_a_former_epoch_may_be_claimed() -> None:
    assert judge(ROOT, None, None) is Ownership.UNCLAIMED
    assert judge(ROOT, RECORD._replace(epoch=0, root="/old"), None) is Ownership.UNCLAIMED


def test_an_older_record_than_noted_is_the_roots_own_if_its_commit_was_removed() -> None:
    noted = RECORD._replace(version=RECORD.version + 1, digest="e")
    assert judge(ROOT, RECORD, noted, Recorded.REMOVED) is Ownership.OWNED
    assert judge(ROOT, RECORD, noted, Recorded.UNKNOWN) is Ownership.UNSEEN_COMMIT
    assert judge(ROOT, noted, RECORD, Recorded.REMOVED) is Ownership.UNSEEN_COMMIT
    assert judge(ROOT, RECORD._replace(digest="e"), RECORD, Recorded.REMOVED) is Ownership.UNSEEN_COMMIT


@given(first=roots, second=roots, record=records, noted=st.none() | records, recorded=st.sampled_from(Recorded))
def test_two_roots_never_own_one_location(
    first: RootIdentity, second: RootIdentity, record: OwnerRecord, noted: OwnerRecord | None, recorded: Recorded
) -> None:
    """Unless they are one, or copies in one place, which the note and the commit tell apart."""
    owned = [judge(root, record, noted, recorded) is Ownership.OWNED for root in (first, second)]
    assert first == second or not all(owned)


@given(own=roots, record=records)
def test_who_takes_over_may_claim_what_it_saw_and_nobody_else_keeps_it(own: RootIdentity, record: OwnerRecord) -> None:
    taken = own._replace(epoch=next_epoch(own.epoch, record.epoch))
    assert judge(taken, record, None) is Ownership.UNCLAIMED
    claimed = OwnerRecord(taken.epoch, 9, "x", taken.address)
    assert judge(taken, claimed, claimed) is Ownership.OWNED
    assert judge(own, claimed, record, Recorded.KNOWN) is Ownership.SUPERSEDED


def test_what_this_root_noted_itself_under_another_address_proves_no_other_root() -> None:
    there = RECORD._replace(root="/mnt")
    assert judge(ROOT, there, there) is Ownership.ANOTHER_ADDRESS
    assert judge(ROOT, there, there._replace(version=43, digest="d43")) is Ownership.ANOTHER_ADDRESS
    for noted in (None, RECORD, there._replace(version=41), there._replace(digest="e"), there._replace(epoch=0)):
        assert judge(ROOT, there, noted, Recorded.KNOWN) is Ownership.ANOTHER_ROOT
