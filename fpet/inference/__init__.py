"""Loaded tasks at work: forwards for images of several of them, as programs and as graphs."""
