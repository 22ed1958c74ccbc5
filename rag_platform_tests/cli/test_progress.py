"""What long work shows where stderr is no terminal."""

from __future__ import annotations

import dataclasses

import pytest

from rag_platform.cli import progress
from rag_platform.cli.progress import progress_bar, show_job
from rag_platform.ledger.schema import Job

AT = "2026-11-23T10:00:{}.000+00:00"


def stage(done: int, total: int) -> dict[str, object]:
    return {"done": done, "total": total, "since": AT.format("00"), "at": AT.format("10")}


def job(name: str, **stages: dict[str, object]) -> Job:
    fields = {field.name: "" for field in dataclasses.fields(Job)}
    told = {"stage": name, **stages[name], "message": "", "stages": stages}
    return Job(**{**fields, "state": "running", "progress": told, "args": {}, "result": {}})


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            job("embeddings", documents=stage(4, 4), embeddings=stage(20, 100)),
            "embeddings 20 of 100, 2.0 a second, about 40 s left",
        ),
        (  # its process is not at work yet
            dataclasses.replace(
                job("pages", pages=stage(0, 1)), progress={}, args={"version_ids": ["a", "b"]}
            ),
            "starting 0 of 2",
        ),
        (  # two of four documents are read: nobody knows how many texts the others have
            job("embeddings", documents=stage(2, 4), embeddings=stage(20, 50)),
            "embeddings 20 so far, 2.0 a second, about 40 s left, more texts to come",
        ),
        (  # of the embedding that follows nothing is known yet
            job("pages", documents=stage(0, 1), pages=stage(20, 1600)),
            "pages 20 of 1600, 2.0 a second, about 13 min of reading left",
        ),
        (
            job("pages", documents=stage(0, 3), pages=stage(20, 60)),
            "pages 20 so far, 2.0 a second, more pages to come",
        ),
    ],
)
def test_a_log_gets_lines_that_say_what_is_known(
    given: Job, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with progress_bar(quiet=False) as advance:
        show_job(given, advance)
    assert capsys.readouterr().err.splitlines()[0] == line


def test_a_log_shows_the_stage_that_is_worked_on_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with progress_bar(quiet=False) as advance:
        for _ in range(3):
            given = job("release", documents=stage(5, 5), release=stage(0, 1))
            given.progress["message"] = "writing the vectors"
            show_job(given, advance)
    assert capsys.readouterr().err == "release, writing the vectors\n"


def test_short_and_quiet_work_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with progress_bar(quiet) as advance:
            advance("parsing", 1, 2)
    assert capsys.readouterr().err == ""
