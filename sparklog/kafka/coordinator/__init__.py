"""Where kafka-python has its assignors: ``kafka.coordinator``."""
