"""The metrics of a cluster for Prometheus: which there are, their values, and the text that is scraped."""
