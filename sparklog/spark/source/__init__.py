"""Reading: plans offset ranges and reads them in tasks."""
