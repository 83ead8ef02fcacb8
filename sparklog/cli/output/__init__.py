"""What commands print: the documents of ``--json``, and the tables and lines made of them."""
