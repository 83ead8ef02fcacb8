"""Random identities, as a constructor argument. The only place that may draw randomness.

Ids are URL-safe. Nothing depends on their order.
"""

from __future__ import annotations

import base64
import random
import uuid
from typing import Protocol


class Ids(Protocol):
    """Source of unique names and jitter."""

    def write_id(self) -> str:
        """Return a globally unique name for one write, 22 characters."""

    def topic_id(self) -> str:
        """Return a topic id as Kafka prints it: a base64url UUID of 22 characters."""

    def jitter(self) -> float:
        """Return a number in [0, 1) for back-off."""


class RandomIds:
    """UUID version 4 and the system's randomness. Thread-safe, picklable."""

    def write_id(self) -> str:
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()

    def topic_id(self) -> str:
        while True:  # as in Kafka, no leading dash: command lines would take the id for a flag
            text = self.write_id()
            if not text.startswith("-"):
                return text

    def jitter(self) -> float:
        return random.random()


class SeededIds:
    """Deterministic ids from a seed, for simulations and golden files. Not thread-safe."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def write_id(self) -> str:
        return base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()

    def topic_id(self) -> str:
        return self.write_id().replace("-", "a")

    def jitter(self) -> float:
        return self._random.random()
