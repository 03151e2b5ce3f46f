"""What a dataset holds, what would ruin a training on it, and the draft of its `dataset.yaml`."""
