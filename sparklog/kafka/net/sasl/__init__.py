"""Re-exports the token provider, where kafka-python has it. There is no server to authenticate to."""
