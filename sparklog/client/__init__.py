"""Read and write a cluster from plain Python, without Spark: ``Producer``, ``Consumer`` and ``AdminClient``.

    producer       config, topic_routing  ->  record_accumulator  ->  sender, transactions
                   table_batches (Arrow tables), batch_files (segment files), futures (what ``send`` returns)
    consumer       config, subscription_state, positions  ->  fetcher  ->  records
                   group_session (membership, heartbeats, commits), offsets_topic (``__consumer_offsets``)
    admin          base, one module for each area, its classes in types
    shared         config (arguments of all three), reader (offsets and records of partitions), metrics, deadlines

Rules: no Spark, no pandas. Not for: decisions (``protocol``), checks of records (``records``), membership of groups
(``coordinator``).
"""
