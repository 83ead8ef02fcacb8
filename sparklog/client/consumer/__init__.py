"""The consumer: subscription, group session, positions, and a thread that fetches ahead."""
