"""What commands take: the option parser, and arguments that several commands share."""
