"""Reading and writing a cluster from plain Python, without Spark: ``Producer``, ``Consumer`` and ``AdminClient``.

    producer       producer_config, topic_metadata, record_checks   ->  accumulator  ->  sender, transactions
                   table_batches (whole Arrow tables), batch_files (the file), futures (what send returns)
    consumer       consumer_config, subscription, consumer_positions  ->  fetcher  ->  consumer_records
                   consumer_group (membership, heartbeats, commits), consumer_offsets (the topic of that name)
    admin          admin_base, one part each in admin_*, its classes in admin_types
    beneath        config (arguments of all three), reader and records (one call, one commit: tools use these)

Rules: no Spark, no pandas. Not for: what is decided (``protocol``), who is in a group (``coordinator.membership``).
"""
