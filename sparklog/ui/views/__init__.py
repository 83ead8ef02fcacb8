"""Pure functions from states, system tables and records to what the templates of the web page show."""
