"""The output strides that can be chosen: tables have to know them without the libraries of networks, slow to load."""

OUTPUT_STRIDES = {"deeplabv3": (8, 16), "deeplabv3plus": (16, 8), "pan": (16, 32)}
"""Of the architectures that can dilate their encoder; the first is the usual one."""
