"""The bytes of segments: Arrow files with sparse indexes, and Parquet for history. Pure; nothing here opens a store."""
