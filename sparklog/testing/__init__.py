"""Shipped tools for testing programs that use sparklog, and sparklog itself. Nothing in the package imports them."""
