"""The version of kafka-python whose interface this is, for programs that ask."""

__version__ = "3.0.12"

__all__ = ["__version__"]
