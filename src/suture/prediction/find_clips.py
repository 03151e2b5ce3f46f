"""Input discovery for `suture predict`: video files, image folders, globs."""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.core.schemas import require_no_run
from suture.data.dataset import VideosBy
from suture.data.images import IMAGE_SUFFIXES
from suture.data.listing import before_number, images_of, iterate_folders, masks_beside, natural
from suture.data.video import VIDEO_SUFFIXES
from suture.data.video_index import MASK_FOLDERS, is_prediction
from suture.prediction.input_clip import InputClip

EXPECTED = f"a video ({', '.join(sorted(VIDEO_SUFFIXES))}) or an image ({', '.join(sorted(IMAGE_SUFFIXES))})"


def find_clips(
    inputs: Iterable[str | Path], leave_out: Path | None = None, videos_by: VideosBy = "folder"
) -> list[InputClip]:
    """Find the clips of paths, folders and globs.

    Below a folder, masks of a dataset and results of earlier predictions are left out.

    Args:
        inputs: Video files, images, folders and globs.
        leave_out: Folder that is not searched.
        videos_by: What makes one clip of images: their folder, or the name before their number.

    Returns:
        Each clip once. It is named after its file, folder or images, and if another has the same name also after the
        folders above.
    """
    videos: list[Path] = []
    images: dict[Path, list[Path]] = {}
    for path in (path for entry in inputs for path in expand_input(str(entry))):
        files = list(_files_below(path, leave_out)) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{path} holds neither videos nor images: expected {EXPECTED}.")
        for file in files:
            if suffix_of(file) in IMAGE_SUFFIXES:
                images.setdefault(Path(os.path.normpath(file.parent)), []).append(file)
            else:
                videos.append(file)
    clips = [InputClip(path) for path in videos]
    for folder, files in images.items():
        ordered = sorted({file.name for file in files}, key=natural)
        groups: dict[str, list[Path]] = {}
        for stem, name in images_of(folder, ordered).items():
            groups.setdefault(before_number(stem) if videos_by == "name" else "", []).append(folder / name)
        clips += [
            InputClip(folder / name if len(paths) > 1 else paths[0], tuple(paths)) for name, paths in groups.items()
        ]
    once = {(os.path.realpath(clip.path), *(image.name for image in clip.images)): clip for clip in clips}
    return _name_clips(list(once.values()))


def share_clips(clips: Sequence[InputClip], rank: int, world: int) -> list[InputClip]:
    """Return this process's share of the clips, of about as many bytes as that of the others."""
    loads = [0] * world
    own = []
    for clip in sorted(clips, key=lambda clip: (-clip.nbytes, clip.name)) if world > 1 else clips:
        smallest = loads.index(min(loads))
        loads[smallest] += clip.nbytes
        if smallest == rank:
            own.append(clip)
    return own


def expand_input(value: str) -> list[Path]:
    """Return the files and folders of a path or glob; raise if there are none."""
    paths = [value] if os.path.lexists(value) else glob.glob(os.path.expanduser(value), recursive=True)
    if not paths:
        raise UserError(f"The input {value} does not exist: expected {EXPECTED}, a folder or a glob.")
    for path in paths:
        require_no_run(Path(path), "videos or images: a model is named once, before them")
    return [Path(path) for path in sorted(paths, key=natural)]


def _files_below(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    excluded = leave_out and leave_out.resolve()
    for inside, folders, files in iterate_folders(folder):
        if is_prediction(inside, files):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in MASK_FOLDERS and (inside / name).resolve() != excluded]
        masks = {mask for names in masks_beside(files).values() for mask in names}
        kinds = VIDEO_SUFFIXES | IMAGE_SUFFIXES
        yield from (inside / name for name in files if name not in masks and suffix_of(name) in kinds)


def _name_clips(clips: list[InputClip]) -> list[InputClip]:
    """Name each clip by the shortest end of its path that no other has, with `_` between the folders."""
    endings = []
    for clip in clips:
        path = Path(os.path.abspath(clip.path))
        # The suffix separates a.mp4 from a.avi. A folder has no suffix, even with a point in its name.
        stem = path if len(clip.images) > 1 else path.with_suffix("")
        full = path.with_name(path.name.replace(".", "_"))
        lengths = range(1, len(path.parts))
        endings.append(["_".join(one.parts[-length:]) for one in (stem, full) for length in lengths])
    # Names are compared without case: on some file systems A and a are the same.
    count = Counter(name for names in endings for name in {name.casefold() for name in names})
    for clip, names in zip(clips, endings, strict=True):
        clip.name = next((name for name in names if count[name.casefold()] == 1), "")
        if not clip.name:
            raise UserError(f"The results of {clip.path} and of another input would have one name: rename one of them.")
    return clips
