"""Rolling, compaction and retention: jobs that replace or delete segments."""
