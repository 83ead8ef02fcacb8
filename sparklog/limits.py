"""Every hard limit, with its unit and its reason; those of ``log.settings`` are its defaults.

Not for: settings that users may change (``sparklog.config``).
"""

MAX_COMMIT_BYTES = 4 * 1024 * 1024
"""bytes. Every reader reads a commit whole, and it must be uploaded in one conditional request, never multipart."""

MAX_CREATE_BYTES = 256 * 1024 * 1024
"""bytes of an object that is created in one conditional request, by a client that never splits it: a commit of a table
with about a million files."""

MAX_INLINE_ACTIONS_BYTES = 512 * 1024
"""bytes. Larger lists of actions are stored in an object beside the commit, so that commits stay quick to re-read."""

MAX_INLINE_ACTIONS = 4096
"""actions. Longer lists are stored in an object beside the commit without measuring them first."""

MAX_SPILLED_ACTIONS_BYTES = 256 * 1024 * 1024
"""bytes. Actions of one commit stored in an object beside it: about 800,000 appends."""

MAX_CLUSTER_FILE_BYTES = 64 * 1024
"""bytes. cluster.json and boundary.json hold a handful of fields."""

RESERVE_BYTES = 512 * 1024
"""bytes that a root on a disk keeps for what frees space: a listing of ``LISTED_FILES``, and some commits."""

LISTED_FILES = 10_000
"""files that retention takes out of the log with one commit, so that their listing fits into the reserve of a full
disk; of a deleted topic the listing has these where all of them do not fit."""

RESERVE_FILES = 8
"""files that a root on a disk keeps for them: a listing, some commits, and the temporary files of these."""

MAX_LOCATIONS_FILE_BYTES = 64 * 1024
"""bytes of locations.json, which is read where a broker is not at the root."""

MAX_INDEX_BYTES = 256 * 1024 * 1024
"""bytes. About 1.5 million batches; a larger .index is corrupt."""

MAX_CHECKPOINT_PART_BYTES = 4 * 1024 * 1024 * 1024
"""bytes of one part of a checkpoint; larger ones are refused on read."""

MAX_LISTING_BYTES = 1024 * 1024 * 1024
"""bytes of a decompressed listing of retired files: about ten million files."""

MAX_MANIFEST_BYTES = 1024 * 1024 * 1024
"""bytes of a checkpoint's manifest: about 150 per segment file of each topic."""

MAX_TOPIC_NAME_LENGTH = 249
"""characters. Kafka's limit: a directory name of 255 less '-', the partition number and a suffix."""

MAX_PARTITIONS_PER_TOPIC = 100_000
"""partitions. Keeps a create_topic commit under MAX_COMMIT_BYTES."""

MAX_BATCH_BYTES = 1024 * 1024 * 1024
"""bytes. A record batch's columns use 32-bit Arrow offsets; half of that range leaves room for one large record."""

TARGET_BATCH_BYTES = 1024 * 1024
"""bytes. Spark's Arrow channel moves batches of about this size fastest."""

TARGET_ROW_GROUP_BYTES = 4 * TARGET_BATCH_BYTES
"""bytes of records in a row group of a history segment. A look-up decodes one, and larger ones take no less space
(docs/decisions/0021)."""

MAX_RECORD_BYTES = 512 * 1024 * 1024
"""bytes. The most that max.message.bytes can admit, so that a batch of one record fits 32-bit Arrow offsets."""

MAX_BATCHES_PER_FILE = 1_000_000
"""record batches. Bounds what an index may claim."""

MAX_ROW_GROUPS_PER_FILE = 4096
"""row groups of a history segment: 16 GiB at their usual size, with a footer of some MiB that other readers parse."""

MAX_OFFSETS_PER_COMMIT = 65_536
"""offsets of groups that one commit changes: each is a record of ``__consumer_offsets``, where a commit has as many."""

MAX_APPLICATION_ID_LENGTH = 512
"""characters of a txnAppId or a streaming query id; the state keeps it, by default forever."""

MAX_FORGOTTEN_PER_COMMIT = 1000
"""producers or applications that one commit forgets: about 0.6 MB if all names have the greatest length."""

MAX_GROUP_ID_LENGTH = 249
"""characters of a consumer group's name."""

COMMIT_ATTEMPTS = 1000
"""commit attempts against competing writers before CommitConflictError."""

COMMIT_SECONDS = 120.0
"""seconds for which a commit is attempted against competing writers: as long as a producer waits for an
acknowledgement."""

REFRESH_SECONDS = 120.0
"""seconds within which a process has to reach the end of the log; normally that takes a few requests."""

CHECKPOINT_INTERVAL_COMMITS = 100
"""commits between checkpoints: normally the most that opening a cluster reads one by one."""

CHECKPOINT_INTERVAL_SEGMENTS = 20_000
"""segments added since the last checkpoint after which the next is due: folding 200,000 took a second."""

IDEMPOTENT_BATCHES_KEPT = 5
"""appends per producer and partition whose results are kept, as in Kafka's ProducerStateEntry."""

SEGMENT_CHANGES_KEPT = 16
"""replacements and deletions of segments that a partition keeps, to detect jobs that changed the same ones."""

MAX_SEGMENT_OFFSETS = 2**31 - 1
"""offsets that one segment may span, as in Kafka: a record's offset in a file with gaps is 32 bits from its base."""

MAX_CLOCK_SKEW_MS = 300_000
"""ms by which a machine's clock may differ from the storage's; beyond it the storage's clock is used."""

MIN_COMMIT_AGE_MS = 600_000
"""ms for which every commit is kept, whatever the cluster's configs say. A process that has read the log within the
last half of this period cannot be behind the removed commits, as long as clocks differ by less than the other half."""

MIN_COMMITS_KEPT = 100
"""commits before the newest checkpoint that are always kept, in case clocks differ by more than that."""

COMMITS_REMOVED_INLINE = 2 * CHECKPOINT_INTERVAL_COMMITS
"""most commits that the writer of a checkpoint removes: twice the number added, so that removal catches up."""

CHECKPOINTS_KEPT = 2
"""newest checkpoints that stay, whatever their age: one to open from, and one in case that one is damaged."""

MIN_CHECKPOINT_AGE_MS = 900_000
"""ms for which a checkpoint is kept after a newer one was written, for processes that read or extend it."""

BOUNDARY_TIMES_EVERY_MS = 21_600_000
"""ms between two removed commits whose time is recorded: the granularity of a vacuum's age limit."""

BOUNDARY_TIMES_KEPT = 64
"""removed commits whose time is recorded: about two weeks."""

MAX_VERSION = 2**62
"""commits of a cluster. Names have 20 digits; the next version always fits 64 bits."""

MAX_OFFSET = 2**62
"""offset in a log, so that an offset plus the records of a run fits 64 bits."""

MAX_PRODUCER_ID = 2**62
"""producer id. The next one always fits 64 bits."""

MAX_PRODUCER_EPOCH = 2**15 - 1
"""epoch of a producer id: an index stores 16 bits, as Kafka does."""

MAX_COMMIT_TIMESTAMP_MS = 253_402_300_799_999
"""ms since the epoch: the end of the year 9999, the last that the standard library's calendars support."""

MAX_ROWS_PER_FILE = 2**47
"""records of a file: ``MAX_BATCHES_PER_FILE`` batches of ``MAX_BATCH_BYTES``, with 8 bytes of timestamp each."""

MAX_STORED_BYTES = 2**62
"""bytes of files that a commit may claim."""

MAX_STORED_FILES = 2**40
"""files or segments that a commit may claim."""

MAX_STORED_TEXT_LENGTH = 65_536
"""characters of an informational text in a commit, such as a client id, a host or a reason."""

STATED_COLUMNS = 32
"""typed columns of which a history file's statistics are kept, as by Delta; lists, maps and structs have none."""

MAX_STATED_NAMES = 13_000
"""characters, as JSON, of the names of the typed columns in a file's statistics: a commit states each name three times,
beside bounds of up to 65 characters that take six each when escaped, within ``MAX_STORED_TEXT_LENGTH``."""

MAX_CLIENT_ID_LENGTH = 249
"""characters of a client.id or group.instance.id: they are printed in tables and kept in commits."""

MAX_TRANSACTIONAL_ID_LENGTH = 249
"""characters of a transactional.id, the same as for a group's name."""

MAX_CONFIG_NAME_LENGTH = 249
"""characters of a setting's name."""

MAX_CONFIG_VALUE_LENGTH = 1_048_576
"""characters of a setting's value: lists of replicas are the longest."""

MAX_SCHEMA_VERSIONS = 1_000
"""versions of a schema of one topic: all stay in the state, which every process holds."""

MAX_CONFIGS = 1_000
"""settings in one change; about a hundred exist."""

MAX_REPLICAS = 2**15 - 1
"""replicas of a partition: Kafka's replication factor has 16 bits."""

MAX_LAG_STEPS = 100_000
"""times at which one question states the lag: ten weeks by minute. A mistyped step is refused at once."""

MAX_LAG_ROWS = 10_000_000
"""rows of the system table ``lag`` that one question may have: about 1 GB of memory."""
