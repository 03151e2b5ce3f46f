"""The table of datasets."""

import pkgutil

from suture.data import datasets


def test_the_table_lists_every_module() -> None:
    assert {module.name for module in pkgutil.iter_modules(datasets.__path__)} == set(datasets.SOURCES)
    assert all(isinstance(source, datasets.Source) for source in datasets.sources().values())
