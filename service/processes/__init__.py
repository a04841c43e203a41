"""Several processes on one port, each with the whole service; health, metrics and task changes cover all of them."""
