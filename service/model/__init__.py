"""The parts of `service.engine`: tasks in service, the paths of a batch through the model, and what chooses them."""
