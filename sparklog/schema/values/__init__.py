"""Values of records, in JSON, Avro or as texts, read into typed columns by a schema."""
