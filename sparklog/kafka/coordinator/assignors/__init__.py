"""The assignors: ``kafka.coordinator.assignors``."""
