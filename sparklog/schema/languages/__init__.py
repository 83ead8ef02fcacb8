"""The languages of schemas: DDL, Avro and JSON Schema, read into fields; and the schema of a topic's records."""
