"""The sticky assignor: ``kafka.coordinator.assignors.sticky``."""
