import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from suture.core.errors import UserError
from suture.data.classes import IGNORE
from suture.data.dataset import Dataset
from suture.data.datasets import load_dataset
from suture.data.formats import archive as archive_module
from suture.data.formats import open_export

LABEL_MAP = "# label:color_rgb:parts:actions\nbackground:0,0,0::\ngrasper:250,50,83::\nclip: titan:24,121,202::\n"
GRASPER, CLIP = (250, 50, 83), (24, 121, 202)


def png(color: tuple[int, int, int] = GRASPER, cut: bool = False) -> bytes:
    """A mask of 8 × 6 pixels whose first row is painted."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[0] = color
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()[:-30] if cut else file.getvalue()


def write_export(path: Path, masks: Mapping[str, bytes], label_map: str = LABEL_MAP, top: str = "") -> None:
    """Write an export as CVAT does, as zip or as folder."""
    files = {
        "labelmap.txt": label_map.encode(),
        "ImageSets/Segmentation/default.txt": "\n".join(masks).encode(),
        **{f"SegmentationClass/{name}.png": content for name, content in masks.items()},
        **{f"SegmentationObject/{name}.png": content for name, content in masks.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(top + name, content)
    else:
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)


def write_videos(root: Path, *videos: str) -> None:
    for video in videos:
        folder = root / "videos" / video
        folder.mkdir(parents=True)
        for number in range(3):
            Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(folder / f"frame_{number:06d}.png")


def write_file(root: Path, masks: object = "masks", **more: object) -> None:
    classes = [{"name": "grasper"}, {"name": "clip", "value": "clip: titan"}]
    content = {"videos": "videos", "masks": masks, "classes": classes, "unpainted": "background", "view": "none"}
    (root / "dataset.yaml").write_text(yaml.safe_dump(content | more))


def painted(dataset: Dataset) -> dict[str, dict[int, str]]:
    """Class of the first row of each mask."""
    names = [*dataset.classes.names]
    return {
        video.id: {index: names[dataset.read_mask(video, index)[0, 0]] for index in video.with_mask}
        for video in dataset
        if video.with_mask
    }


@pytest.mark.parametrize("suffix", [".zip", ""])
def test_one_export_per_video(tmp_path: Path, suffix: str) -> None:
    write_videos(tmp_path, "a", "b")
    write_export(tmp_path / f"masks/a{suffix}", {"frame_000001": png(), "frame_000002": png(CLIP)})
    write_export(tmp_path / f"masks/b{suffix}", {"frame_000000": png(CLIP)})
    write_file(tmp_path)
    dataset = load_dataset(tmp_path)
    assert dataset.classes.names == ("background", "grasper", "clip")
    assert painted(dataset) == {"a": {1: "grasper", 2: "clip"}, "b": {0: "clip"}}
    assert set(np.unique(dataset.read_mask(dataset["a"], 1)[1:])) == {0}


@pytest.mark.parametrize("path", ["masks.zip", "masks"])
def test_one_export_of_extracted_frames(tmp_path: Path, path: str) -> None:
    write_videos(tmp_path, "a", "b")
    write_export(
        tmp_path / path, {"a__frame_000001": png(), "sub/b__frame_000002": png(CLIP), "c__frame_000000": png()}
    )
    write_file(tmp_path, path)
    dataset = load_dataset(tmp_path)
    assert painted(dataset) == {"a": {1: "grasper"}, "b": {2: "clip"}}
    assert dataset.unmatched_masks == [f"{tmp_path / path}: SegmentationClass/c__frame_000000.png"]


def test_exports_named_in_the_file(tmp_path: Path) -> None:
    write_videos(tmp_path, "a", "b")
    write_export(tmp_path / "task_17.zip", {"frame_000001": png()}, top="task 17/")
    write_file(tmp_path, {"b": "task_17.zip"})
    assert painted(load_dataset(tmp_path)) == {"b": {1: "grasper"}}


def test_a_label_that_names_a_class_is_that_class_whatever_its_colour(tmp_path: Path) -> None:
    """But for the background, which is what nobody painted."""
    write_videos(tmp_path, "a")
    write_export(tmp_path / "masks.zip", {"a__frame_000001": png()})
    classes = [{"name": "background", "value": [9, 9, 9]}, {"name": "grasper", "value": [1, 2, 3]}]
    write_file(tmp_path, "masks.zip", classes=[*classes, {"name": "other", "value": [*GRASPER]}], unpainted="ignore")
    dataset = load_dataset(tmp_path)
    assert painted(dataset) == {"a": {1: "grasper"}}
    assert set(np.unique(dataset.read_mask(dataset["a"], 1)[1:])) == {IGNORE}


def test_each_export_has_its_own_colors(tmp_path: Path) -> None:
    write_videos(tmp_path, "a", "b")
    write_export(tmp_path / "masks/a.zip", {"frame_000001": png(GRASPER)})
    write_export(
        tmp_path / "masks/b.zip", {"frame_000001": png(GRASPER)}, "background:0,0,0::\nclip: titan:250,50,83::\n"
    )
    write_file(tmp_path)
    assert painted(load_dataset(tmp_path)) == {"a": {1: "grasper"}, "b": {1: "clip"}}


def test_an_export_beside_plain_masks(tmp_path: Path) -> None:
    write_videos(tmp_path, "a", "b")
    write_export(tmp_path / "masks/a.zip", {"frame_000001": png()})
    (tmp_path / "masks/b").mkdir()
    Image.fromarray(np.full((6, 8), 7, np.uint8)).save(tmp_path / "masks/b/frame_000000.png")
    classes = [{"name": "grasper", "value": ["grasper", 7]}]
    write_file(tmp_path, classes=classes)
    assert painted(load_dataset(tmp_path)) == {"a": {1: "grasper"}, "b": {0: "grasper"}}


def test_unannotated_classes_are_ignored(tmp_path: Path) -> None:
    write_videos(tmp_path, "a")
    write_export(tmp_path / "masks/a.zip", {"frame_000001": png()})
    write_file(tmp_path, annotated={"a": ["grasper"]})
    dataset = load_dataset(tmp_path)
    assert set(np.unique(dataset.read_mask(dataset["a"], 1)[1:])) == {IGNORE}


@pytest.mark.parametrize(
    ("mask", "more", "message"),
    [
        (
            png(CLIP),
            {"classes": [{"name": "grasper"}]},
            r"holds the value clip: titan \(8 pixels\)",
        ),
        (png((1, 2, 3)), {}, r"holds the value \(1, 2, 3\)"),
        (png(), {"unpainted": None}, r"holds pixels without any label \(40 pixels\)"),
        (png(cut=True), {}, "does not decode"),
    ],
)
def test_masks_that_cannot_be_read_are_named(
    tmp_path: Path, mask: bytes, more: dict[str, object], message: str
) -> None:
    write_videos(tmp_path, "a")
    write_export(tmp_path / "masks/a.zip", {"frame_000001": mask})
    write_file(tmp_path, **more)
    dataset = load_dataset(tmp_path)
    with pytest.raises(UserError, match=rf"frame_000001\.png {message}"):
        dataset.read_mask(dataset["a"], 1)


def test_no_label_is_known(tmp_path: Path) -> None:
    write_videos(tmp_path, "a")
    write_export(tmp_path / "masks/a.zip", {"frame_000001": png()})
    write_file(tmp_path, classes=[{"name": "liver"}])
    with pytest.raises(UserError, match=r"none of the labels of .*a\.zip \(grasper, clip: titan\)"):
        load_dataset(tmp_path)


def test_content_changes_with_the_mask_and_with_the_labels(tmp_path: Path) -> None:
    contents = set()
    for number, (label_map, color) in enumerate([(LABEL_MAP, GRASPER), (LABEL_MAP, CLIP), ("grasper:1,2,3::", CLIP)]):
        write_export(tmp_path / f"{number}.zip", {"f": png(color)}, label_map)
        contents.add(open_export(tmp_path / f"{number}.zip").mask("f", {}, None).content())
    assert len(contents) == 3


def write_zip(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"x")


@pytest.mark.parametrize("name", ["../labelmap.txt", "a/../../x.png", "/etc/x.png", "..\\x.png", "C:\\x.png"])
def test_a_zip_that_leads_out_of_itself(tmp_path: Path, name: str) -> None:
    write_zip(tmp_path / "a.zip", "labelmap.txt", name)
    with pytest.raises(UserError, match=r"a\.zip holds the path .* which leads out of it"):
        open_export(tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_zip_of_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "MAX_UNCHECKED", 2**20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(2**22))
    with pytest.raises(UserError, match=r"claims to hold 0\.0 GB"):
        open_export(tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["", "9" * 5000 + ".png"])
def test_a_member_without_a_name_or_with_a_long_one(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("labelmap.txt", "")
        archive.writestr(zipfile.ZipInfo(name), b"")
    with pytest.raises(UserError, match="without a name" if not name else "has no masks"):
        open_export(tmp_path / "a.zip")


def test_a_zip_that_claims_a_hundred_gigabytes(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip", *(f"SegmentationClass/{number}.png" for number in range(26)))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    place = 0
    while (place := content.find(b"PK\x01\x02", place)) >= 0:  # the entries of the list at the end: size at byte 24
        content[place + 24 : place + 28] = (0xFFFFFFF0).to_bytes(4, "little")
        place += 4
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"claims to hold 104\.0 GB"):
        open_export(tmp_path / "a.zip")


def test_a_member_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_export(tmp_path / "a.zip", {"f": png()})
    export = open_export(tmp_path / "a.zip")
    monkeypatch.setattr(archive_module, "MAX_MEMBER", 10)
    with pytest.raises(UserError, match=r"f\.png is damaged"):
        export.mask("f", {}, None).content()


def test_files_that_are_no_zip(tmp_path: Path) -> None:
    write_export(tmp_path / "whole.zip", {"f": png()})
    for cut in (0, 10, -40):
        (tmp_path / "cut.zip").write_bytes((tmp_path / "whole.zip").read_bytes()[:cut])
        with pytest.raises(UserError, match=r"cut\.zip is not a zip that can be read"):
            open_export(tmp_path / "cut.zip")


@pytest.mark.parametrize("label_map", ["grasper", "a:1,2::", "a:1,2,3::\nb:1,2,3::"])
def test_refuses_a_bad_label_map(tmp_path: Path, label_map: str) -> None:
    write_export(tmp_path / "a.zip", {"f": png()}, label_map)
    with pytest.raises(UserError, match=r"labelmap\.txt, line \d .*expected label:red,green,blue"):
        open_export(tmp_path / "a.zip")


def test_refuses_an_export_without_masks(tmp_path: Path) -> None:
    write_export(tmp_path / "a.zip", {})
    with pytest.raises(UserError, match="has no masks: expected images in SegmentationClass"):
        open_export(tmp_path / "a.zip")


def test_a_zip_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    write_export(tmp_path / "a.zip", {"f": png()})
    assert open_export(tmp_path / "a.zip").frames == ["f"]
    write_export(tmp_path / "a.zip", {"f": png(), "g": png()})
    assert open_export(tmp_path / "a.zip").frames == ["f", "g"]
