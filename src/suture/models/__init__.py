"""Networks: segmenters of any encoder and architecture, their weights on disk, and faster layers."""

OUTPUT_STRIDES = {"deeplabv3": (8, 16), "deeplabv3plus": (16, 8), "pan": (16, 32)}
"""Output strides of the architectures that can dilate their encoder; the first one is the default."""
