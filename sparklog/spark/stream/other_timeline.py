"""Find out whether the offsets of a streaming query are of the timeline that the log has now.

A root may be restored from a copy, or promoted, while a query runs or is stopped: then other records may have its
offsets. Each offset names the commit in whose state it was found (``PlannedAt``), and that is compared with the log's.

Rules: reads only, and usually not even that: a process that has read the commit knows its digest.
Not for: files that a job has written (``coordinator.begun_files``).
"""

from __future__ import annotations

from sparklog.coordinator.begun_files import describe_instead, find_digest
from sparklog.log.commits.commit_log import CommitLog
from sparklog.protocol.decide.append import Begun
from sparklog.spark.stream.offsets import OtherTimeline, StreamOffsets


def find_other_timeline(log: CommitLog, offsets: StreamOffsets, has_jumped: bool) -> OtherTimeline | None:
    """Return why these offsets are, or may be, of another timeline than the log's, None if nothing speaks for it: their
    commit may have been removed since. ``has_jumped``: a checkpoint was loaded that nothing links to what this process
    had read before (``CommitLog.unlinked_jumps``), possibly since the offsets were found. Raises StorageError."""
    planned = offsets.planned_at
    stored = None if planned is None else find_digest(log, Begun(*planned))
    if planned is not None and stored is not None and stored != planned.digest:
        found = f"it was found at commit {planned.version}, and {describe_instead(stored)}"
        return OtherTimeline(f"{found}: the root was restored from a copy or promoted", is_certain=True)
    if stored is None and has_jumped:
        why = (
            "commits were removed before this query had read them, as they are while its process is suspended for "
            "long, but also in a root that was restored from a copy"
        )
        return OtherTimeline(why, is_certain=False)
    return None
