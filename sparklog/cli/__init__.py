"""The command ``sparklog``: Kafka's command-line tools, with their flags, their output and their exit codes."""
