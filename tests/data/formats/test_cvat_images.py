import zipfile
from pathlib import Path

import numpy as np
import pytest

from suture.core.errors import UserError
from suture.data.formats import is_export, open_export

LABELS = (
    "<meta><task><labels><label><name>grasper</name></label><label><name>clip</name></label></labels></task></meta>"
)
POLYGON = '<polygon label="clip" z_order="1" points="2.0,1.0;6.0,1.0;6.0,4.0;2.0,4.0"/>'
MASK = '<mask label="grasper" z_order="2" rle="1, 2, 1" left="2" top="1" width="2" height="2"/>'


def write(folder: Path, *shapes: str, image: str = 'width="8" height="6"', more: str = "") -> Path:
    path = folder / "annotations.xml"
    inside = f'{LABELS}{more}<image id="0" name="b/a.1.png" {image}>{"".join(shapes)}</image>'
    path.write_text(f'<?xml version="1.0"?>\n<annotations>{inside}</annotations>')
    return path


@pytest.mark.parametrize("shapes", [(POLYGON, MASK), (MASK, POLYGON)])
def test_shapes_are_drawn_by_z_order(tmp_path: Path, shapes: tuple[str, str]) -> None:
    path = write(tmp_path, *shapes)
    with zipfile.ZipFile(tmp_path / "task.zip", "w") as archive:
        archive.write(path, "annotations.xml")
    expected = np.full((6, 8), -1)
    expected[1:4, 2:6] = 2
    expected[1, 3] = expected[2, 2] = 1
    for export in (path, tmp_path / "task.zip"):
        assert is_export(export)
        assert (open_export(export).mask("b/a.1", {"grasper": 1, "clip": 2}, None).read(False) == expected).all()


def test_an_ellipse_is_turned(tmp_path: Path) -> None:
    ellipse = '<ellipse label="clip" cx="4" cy="3" rx="3" ry="1" rotation="90"/>'
    mask = open_export(write(tmp_path, ellipse)).mask("b/a.1", {"clip": 0}, None).read(False) == 0
    assert mask.any(0).sum() == 2
    assert mask.any(1).sum() == 6


def test_images_without_shapes_are_not_labelled_and_boxes_are_counted(tmp_path: Path) -> None:
    export = open_export(write(tmp_path, '<box label="clip" xtl="0" ytl="0" xbr="3" ybr="3"/>'))
    assert export.frames == []
    assert export.boxes[0].boxes == 1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"more": "<track/>"}, "tracks of a video"),
        ({"more": "<unclosed>"}, "mismatched tag"),
        ({"image": 'width="8"'}, "height"),
        ({"image": 'width="99999" height="99999"'}, "impossible"),
    ],
)
def test_files_that_are_wrong_are_named(tmp_path: Path, part: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=rf"annotations\.xml.*{message}"):
        open_export(write(tmp_path, **part))


@pytest.mark.parametrize("place", ['left="7" top="0"', 'left="-1" top="0"', 'left="0" top="5"'])
def test_a_mask_that_leaves_the_image_is_named(tmp_path: Path, place: str) -> None:
    mask = f'<mask label="clip" rle="0, 4" width="2" height="2" {place}/>'
    with pytest.raises(UserError, match=r"b/a\.1 has a shape that cannot be drawn"):
        open_export(write(tmp_path, mask)).mask("b/a.1", {"clip": 1}, None).read(False)


def test_entities_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text('<!DOCTYPE x [<!ENTITY a "b">]><annotations>&a;</annotations>')
    with pytest.raises(UserError, match="document type"):
        open_export(path)


def test_other_xml_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "voc.xml").write_text("<annotation><object/></annotation>")
    assert not is_export(tmp_path / "voc.xml")
