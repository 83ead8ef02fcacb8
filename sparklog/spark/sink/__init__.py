"""The data source's write side: convert, validate and route rows, and write the files of a task."""
