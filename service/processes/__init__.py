"""Several processes that answer on one port, each a whole service; what is asked of one is told of all."""
