"""Where kafka-python has its token provider. There is nothing to log in to."""
