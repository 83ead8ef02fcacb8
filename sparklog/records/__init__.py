"""Records on their way to a file: what a topic accepts, and which partition a record goes to. Pure; no storage."""
