"""Validation of datasets, and the draft of a `dataset.yaml`."""
