"""ONNX export and model cards."""
