"""Pre-trains the small embedded backbone; run as `python -m pretraining`."""
