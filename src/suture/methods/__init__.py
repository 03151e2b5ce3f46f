"""Training methods, one file each. A new method is a file here, a line in `METHODS` and a test."""

METHODS = {
    "supervised": "SupervisedOnly",
    "twice": "Twice",
    "strong": "StrongOnly",
    "stitch": "StitchMethod",
    "pgvcl": "PGVCL",
    "pixpro": "PixPro",
    "selftraining": "SelfTraining",
    "dmt": "DMT",
    "uamt": "UAMT",
    "unimatch": "UniMatch",
    "propagate": "Propagate",
}
"""Names of the methods, which are also their modules, and their `Method` classes."""
