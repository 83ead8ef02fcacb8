"""Every hard limit, with its unit and its reason. A setting a user may change is a config, not a limit."""

MAX_COMMIT_BYTES = 4 * 1024 * 1024
"""bytes. A commit is read whole by every reader and must go up in one conditional request, never multipart."""

MAX_INLINE_ACTIONS_BYTES = 512 * 1024
"""bytes. Actions of a commit that take more lie in an object beside it, so that commits stay quick to read again."""

MAX_INLINE_ACTIONS = 4096
"""actions. More of them lie in an object beside the commit without being measured first."""

MAX_SPILLED_ACTIONS_BYTES = 256 * 1024 * 1024
"""bytes. The actions of one commit in an object of their own: some 800,000 appends."""

MAX_CLUSTER_FILE_BYTES = 64 * 1024
"""bytes. cluster.json and boundary.json hold a handful of fields."""

MAX_LOCATIONS_FILE_BYTES = 64 * 1024
"""bytes of locations.json, which is read where a broker is elsewhere than the root."""

MAX_INDEX_BYTES = 256 * 1024 * 1024
"""bytes. About 1.5 million batches; a larger .index is damage, not data."""

MAX_CHECKPOINT_PART_BYTES = 4 * 1024 * 1024 * 1024
"""bytes. One part of a checkpoint; larger ones are refused on read."""

MAX_LISTING_BYTES = 1024 * 1024 * 1024
"""bytes that a listing of removed files may become once decompressed: some ten million files."""

MAX_MANIFEST_BYTES = 1024 * 1024 * 1024
"""bytes. A checkpoint's manifest, about 150 bytes per segment file of each topic."""

MAX_TOPIC_NAME_LENGTH = 249
"""characters. Kafka's limit: a directory name of 255 less '-', the partition number and a suffix."""

MAX_PARTITIONS_PER_TOPIC = 100_000
"""partitions. Keeps a create_topic commit under MAX_COMMIT_BYTES."""

MAX_BATCH_BYTES = 1024 * 1024 * 1024
"""bytes. A record batch's columns use 32-bit Arrow offsets; half of that range leaves room for one large record."""

TARGET_BATCH_BYTES = 1024 * 1024
"""bytes. Spark's Arrow channel moves batches of about this size fastest."""

MAX_RECORD_BYTES = 512 * 1024 * 1024
"""bytes. The most that max.message.bytes can admit, so that a batch of one record fits 32-bit Arrow offsets."""

MAX_BATCHES_PER_FILE = 1_000_000
"""record batches. Bounds what an index may claim."""

MAX_APPLICATION_ID_LENGTH = 512
"""characters of a txnAppId or a streaming query id; it is kept in the state, by default for good."""

MAX_FORGOTTEN_PER_COMMIT = 1000
"""producers or applications that one commit forgets: with names of the longest kind some 0.6 MB."""

MAX_GROUP_ID_LENGTH = 249
"""characters of a consumer group's name."""

COMMIT_ATTEMPTS = 1000
"""tries of one commit against other writers before CommitConflictError."""

COMMIT_SECONDS = 120.0
"""seconds for which a commit is tried against other writers: as long as a producer waits for an acknowledgement."""

REFRESH_SECONDS = 120.0
"""seconds in which a process has to reach the end of the log, which it does within a few requests' time."""

CHECKPOINT_INTERVAL_COMMITS = 100
"""commits between checkpoints: what a newly opened cluster reads one by one at most, in the ordinary case."""

CHECKPOINT_INTERVAL_SEGMENTS = 20_000
"""segments added since the last checkpoint that make another one due: folding 200,000 took a second."""

IDEMPOTENT_BATCHES_KEPT = 5
"""appends per producer and partition whose answers are remembered, as in Kafka's ProducerStateEntry."""

SEGMENT_CHANGES_KEPT = 16
"""replacements and deletions of segments that a partition remembers, to tell whether two jobs were at the same ones."""

MAX_SEGMENT_OFFSETS = 2**31 - 1
"""offsets that one segment may span, as in Kafka: a record's offset in a file with gaps is 32 bits from its base."""

MAX_CLOCK_SKEW_MS = 300_000
"""ms by which the clock of a machine may differ from the storage's before the storage's is used in its place."""

MIN_COMMIT_AGE_MS = 600_000
"""ms for which every commit is kept, whatever the cluster's configs say. Who has looked at the log within the last
half of it cannot be behind what was removed, however clocks differ by less than the other half."""

MIN_COMMITS_KEPT = 100
"""commits before the newest checkpoint that are kept as well, should clocks differ by more than that."""

COMMITS_REMOVED_INLINE = 2 * CHECKPOINT_INTERVAL_COMMITS
"""commits that the writer of a checkpoint removes at most: twice what was added, so that it catches up."""

CHECKPOINTS_KEPT = 2
"""newest checkpoints that stay, whatever their age: one to open from, and one in case that one is damaged."""

MIN_CHECKPOINT_AGE_MS = 900_000
"""ms for which a checkpoint stays after a newer one came, for processes that read or build on it."""

BOUNDARY_TIMES_EVERY_MS = 21_600_000
"""ms between two removed commits whose time is remembered: a vacuum's age limit is met to within that."""

BOUNDARY_TIMES_KEPT = 64
"""removed commits whose time is remembered: some two weeks."""

MAX_VERSION = 2**62
"""commits of a cluster. Numbers have 20 digits in names; the next one always fits 64 bits."""

MAX_OFFSET = 2**62
"""offset in a log. So an offset and the records of a run together fit 64 bits."""

MAX_PRODUCER_ID = 2**62
"""producer id. The next one always fits 64 bits."""

MAX_PRODUCER_EPOCH = 2**15 - 1
"""epoch of a producer id: an index stores 16 bits, as Kafka does."""

MAX_COMMIT_TIMESTAMP_MS = 253_402_300_799_999
"""ms since the epoch: the end of the year 9999, after which no calendar of the standard library goes."""

MAX_ROWS_PER_FILE = 2**47
"""records of a file: ``MAX_BATCHES_PER_FILE`` batches of ``MAX_BATCH_BYTES``, with 8 bytes of timestamp each."""

MAX_STORED_BYTES = 2**62
"""bytes that a commit may claim of files."""

MAX_STORED_FILES = 2**40
"""files or segments that a commit may claim."""

MAX_STORED_TEXT_LENGTH = 65_536
"""characters of a text in a commit that nothing depends on, such as a client id, a host, a reason."""

MAX_CLIENT_ID_LENGTH = 249
"""characters of a client.id or group.instance.id: they are printed in tables and kept in commits."""

MAX_TRANSACTIONAL_ID_LENGTH = 249
"""characters of a transactional.id, as of a group's name."""

MAX_CONFIG_NAME_LENGTH = 249
"""characters of a setting's name."""

MAX_CONFIG_VALUE_LENGTH = 1_048_576
"""characters of a setting's value: lists of replicas are the longest."""

MAX_CONFIGS = 1_000
"""settings in one change; there are some hundred."""

MAX_REPLICAS = 2**15 - 1
"""replicas of a partition: Kafka's replication factor has 16 bits."""
