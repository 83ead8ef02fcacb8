"""Checks of metadata and data files, and their repairs."""
