"""A pass of a controller, for tests."""

from __future__ import annotations

from sparklog.coordinator.controller import Controller, ControllerPass
from sparklog.coordinator.coordinator import Coordinator


def check_once(coordinator: Coordinator) -> ControllerPass:
    """Run one pass of a controller that then resigns."""
    controller = Controller(coordinator)
    result = controller.check(wait=True)
    controller.resign()
    return result
