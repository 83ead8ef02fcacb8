"""The data source's read side: plan offset ranges, and read them in tasks."""
