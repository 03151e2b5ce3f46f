"""Timelines of the training videos: shots, labelled and excluded frames."""

from typing import Any

from suture.reports.reported_run import ReportedRun


def shots_section(run: ReportedRun) -> list[dict[str, Any]]:
    """Return the training videos of a run whose shots are known."""
    return [
        {
            "video": name,
            "case": record["case"],
            "frames": record["frames"],
            "shots": list(zip(run.shots[name], [*run.shots[name][1:], record["frames"]], strict=True)),
            "labelled": run.labelled[name],
            "excluded": record["excluded"],
        }
        for name, record in run.videos("train").items()
        if run.shots.get(name)
    ]
