"""The types of stored fields, each with its bounds: neither storage nor callers are trusted.

A value out of bounds is refused when a commit is decoded, and before one is written. Bounds admit everything that an
earlier level may have stored. Changing one is a new level (see ``levels``). Not for: the narrower rules for what a
client may choose (``names``).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sparklog import limits

Format = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""A level, of this version or a later one."""

Version = Annotated[int, Meta(ge=0, le=limits.MAX_VERSION)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Chosen by a caller: timestamps of records, an application's write numbers."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""An offset chosen by a caller: a group's position."""

LogOffset = Annotated[int, Meta(ge=0, le=limits.MAX_OFFSET)]
"""An actual offset in a log: its start, its end, or a boundary of segments."""

LogOffsetOrNone = Annotated[int, Meta(ge=-1, le=limits.MAX_OFFSET)]
Partition = Annotated[int, Meta(ge=0, lt=limits.MAX_PARTITIONS_PER_TOPIC)]
Broker = Annotated[int, Meta(ge=0, le=2**31 - 1)]
IntOrNone = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""A leader, an epoch, a generation or a sequence, or -1 where there is none."""

LeaderEpoch = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ProducerId = Annotated[int, Meta(ge=0, le=limits.MAX_PRODUCER_ID)]
ProducerIdOrNone = Annotated[int, Meta(ge=-1, le=limits.MAX_PRODUCER_ID)]
ProducerEpoch = Annotated[int, Meta(ge=0, le=limits.MAX_PRODUCER_EPOCH)]
ProducerEpochOrNone = Annotated[int, Meta(ge=-1, le=limits.MAX_PRODUCER_EPOCH)]
Timestamp = Annotated[int, Meta(ge=0, le=limits.MAX_COMMIT_TIMESTAMP_MS)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A duration; a setting may be as long as an int64."""

BatchNumber = Annotated[int, Meta(ge=0, le=limits.MAX_BATCHES_PER_FILE)]
Batches = Annotated[int, Meta(ge=1, le=limits.MAX_BATCHES_PER_FILE)]
Row = Annotated[int, Meta(ge=0, le=limits.MAX_ROWS_PER_FILE)]
Records = Annotated[int, Meta(ge=1, le=limits.MAX_ROWS_PER_FILE)]
RecordCount = Annotated[int, Meta(ge=0, le=limits.MAX_OFFSET)]
"""Records of any number of files; may be none."""

Bytes = Annotated[int, Meta(ge=0, le=limits.MAX_STORED_BYTES)]
Files = Annotated[int, Meta(ge=0, le=limits.MAX_STORED_FILES)]

Name = Annotated[str, Meta(min_length=1, max_length=1024)]
TopicName = Annotated[str, Meta(min_length=1, max_length=limits.MAX_TOPIC_NAME_LENGTH)]
Group = Annotated[str, Meta(min_length=1, max_length=limits.MAX_GROUP_ID_LENGTH)]
Text = Annotated[str, Meta(max_length=limits.MAX_STORED_TEXT_LENGTH)]
"""Informational text, or chosen by a caller; may be empty."""

NeededVersion = Annotated[str, Meta(max_length=40)]
ConfigName = Annotated[str, Meta(max_length=limits.MAX_CONFIG_NAME_LENGTH)]
ConfigValue = Annotated[str, Meta(max_length=limits.MAX_CONFIG_VALUE_LENGTH)]
Configs = Annotated[dict[ConfigName, ConfigValue], Meta(max_length=limits.MAX_CONFIGS)]
ConfigNames = Annotated[list[ConfigName], Meta(max_length=limits.MAX_CONFIGS)]
Hex32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Hex32OrEmpty = Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")]
Hex64 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]

ActionsPath = Annotated[str, Meta(pattern=r"\Ameta/actions/[0-9]{20}-[A-Za-z0-9_-]{1,64}\.json\Z")]
ActionsSize = Annotated[int, Meta(ge=1, le=limits.MAX_SPILLED_ACTIONS_BYTES)]
"""The object that holds the actions of a commit with many."""

Brokers = Annotated[list[Broker], Meta(max_length=limits.MAX_REPLICAS)]
"""Replicas of one partition."""

Assignment = Annotated[list[Brokers], Meta(max_length=limits.MAX_PARTITIONS_PER_TOPIC)]
"""Replicas of each partition of a topic."""

Assignors = Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=100)]
