"""Benchmarks: every figure is a ratio to a reference measured in the same run (``docs/benchmarks.md``)."""
