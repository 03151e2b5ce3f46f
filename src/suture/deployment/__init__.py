"""ONNX files and model cards."""
