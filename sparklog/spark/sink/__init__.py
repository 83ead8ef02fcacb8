"""Writing: converts, validates and routes rows, and writes the files of a task."""
