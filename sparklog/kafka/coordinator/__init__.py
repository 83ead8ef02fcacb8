"""The package of the assignors: ``kafka.coordinator``."""
