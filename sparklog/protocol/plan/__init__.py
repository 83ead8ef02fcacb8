"""Plans of work on segments and of placement: what to roll, compact or delete, and where data goes. Pure."""
