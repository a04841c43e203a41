"""The parts of `service.engine`: tasks in service, the ways of a batch through the model, and which is the faster."""
