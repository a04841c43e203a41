"""The Open Inference Protocol, version 2: a task is a model, its generation the model's version."""
