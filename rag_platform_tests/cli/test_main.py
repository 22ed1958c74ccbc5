"""What the command line says and how it exits: 0 done, 1 nothing done, 2 a wrong argument, 3 done
but some documents failed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rag_platform.cli import doctor, output, progress
from rag_platform.cli import main as cli
from rag_platform.cli.main import Program, main
from rag_platform.processes import jobs
from rag_platform_tests.jobs_here import run_here

LIMITS = "# Limits\n\nThe upload limit is 50 MB.\n"
QUESTION = ("query", "What is the upload limit?")


# encoding of the strategy, the retriever that a release then has, what its manifest counts
ENCODINGS = [
    ("sparse_only", "sparse", {"lexical": 1, "dense": 0}),
    ("dense_only", "dense", {"lexical": 0, "dense": 1}),
]


@pytest.fixture(scope="module")
def library(shared_desk: Any) -> Any:
    """A desk with one published document."""
    shared_desk.write(limits=LIMITS)
    assert shared_desk.call("ingest", shared_desk.docs).exit_code == 0
    return shared_desk


def test_a_command_ends_without_a_search_for_garbage() -> None:
    code = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        "import rag_platform.cli.main"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code", "said"),
    [
        (("query", "  "), 2, "empty_query", "empty"),
        (("query", "x" * 4001), 2, "query_too_long", "4001"),
        (("query", "x", "--namespace", "nowhere"), 1, "unknown_namespace", "known: default"),
        (("query", "x", "--filter", "colour=red"), 2, "unknown_filter", "section_path"),
        (("query", "x", "--filter", "tags"), 2, "usage", "key=value"),
        (
            ("query", "x", "--filter", "version_id=default.other@000000000000"),
            2,
            "version_not_live",
            "holds no version",
        ),
        (
            ("query", "x", "--release", "20200101T000000-000000"),
            1,
            "unknown_release",
            "rag releases list",
        ),
        (("verify",), 2, "usage", "--all"),
        (("verify", "chk_none"), 1, "not_found", "chk_none"),
        (("docs", "show", "limts-docs"), 1, "unknown_document", "did you mean limits-docs-"),
        (("docs", "list", "--namespace", "nowhere"), 1, "unknown_namespace", "nowhere"),
        (("docs", "list", "--cursor", "?"), 2, "bad_cursor", "next_cursor"),
        (("releases", "show", "none"), 1, "unknown_release", "none"),
        (("releases", "rollback"), 1, "nothing_to_roll_back", "no earlier release"),
        (("trace", "show", "trc_ffffffff"), 1, "unknown_trace", "trc_ffffffff"),
        (("ingest", "docs", "--namespace", "No Good"), 2, "bad_namespace", "a-z"),
        (("ingest", "docs", "--strategy", "nope"), 1, "unknown_strategy", "known: tiny"),
        (("ingest", "docs", "--meta", "owner"), 2, "usage", "--meta takes key=value"),
        (("ingest", "docs", "--tag", "caf\udce9"), 2, "usage", r"caf\xe9 is not UTF-8"),
        (("docs", "show", "caf\udce9"), 2, "usage", r"caf\xe9 is not UTF-8"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else None,
)
def test_errors_have_a_code_a_remedy_and_an_exit_code(
    library: Any, arguments: Any, exit_code: int, code: str, said: str
) -> None:
    answer = library.call(*arguments)
    assert (answer.exit_code, answer.error["code"]) == (exit_code, code)
    assert said in answer.error["message"] and answer.envelope["data"] is None
    # a wrong argument is told before anything happens
    traced = exit_code == 1 and arguments[0] not in ("ingest", "trace")
    assert answer.envelope["trace_id"].startswith("trc_") or not traced


def test_a_question_before_the_first_release(desk: Any) -> None:
    answer = desk.call(*QUESTION)
    assert (answer.exit_code, answer.error["code"]) == (
        1,
        "no_release",
    ) and "rag ingest" in answer.error["message"]


def test_a_library_whose_indexes_are_gone_has_failed(desk: Any) -> None:
    """One index less is a warning; without any a script must see it, and a person what is
    missing.
    """
    desk.write(limits=LIMITS)
    release = desk.store.release_dir("default", desk.publish())
    shutil.rmtree(release / "lexical")
    assert desk.call(*QUESTION).exit_code == 0
    shutil.rmtree(release / "dense")
    answer = desk.call(*QUESTION)
    assert (answer.exit_code, answer.envelope["ok"], answer.error["code"]) == (
        1,
        False,
        "provider_error",
    )
    assert "rag rebuild" in answer.error["message"] and len(answer.error["details"]["causes"]) == 2
    assert (
        "could not be searched" in answer.data["markdown"]
        and answer.data["effective_mode"] == "none"
    )
    shown = CliRunner().invoke(main, list(QUESTION))
    assert shown.exit_code == 1 and shown.stderr.startswith(
        "error [provider_error]: the library could not be searched: "
    )


def test_only_a_server_tells_of_caches_and_running_questions(library: Any) -> None:
    data = library.call("status").data
    assert (
        "caches" not in data and "running_queries" not in data and ", up " not in data["markdown"]
    )


def test_a_new_embedder_in_the_config_waits_for_its_release(desk: Any) -> None:
    """The old release answers with its own embedder; an ingest, which takes stale documents along,
    brings the library over.
    """
    desk.write(limits=LIMITS)
    first = desk.publish()
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    text = strategy.read_text(encoding="utf-8")
    strategy.write_text(
        text.replace("provider: hashing", "provider: hashing\n  options: {dim: 128}"),
        encoding="utf-8",
    )
    waiting = desk.call(*QUESTION, "--mode", "dense")
    assert waiting.data["release_id"] == first and "50 MB" in waiting.data["answer_markdown"]

    moved = desk.call("ingest", desk.docs)
    assert moved.exit_code == 0 and moved.data["release_id"] != first
    assert "50 MB" in desk.call(*QUESTION).data["answer_markdown"]
    assert desk.call("releases", "show").data["manifest"]["embedder"]["dim"] == 128


def test_a_namespace_keeps_its_strategy(desk: Any) -> None:
    strategies = desk.folder / "config" / "strategies"
    tiny = (strategies / "tiny.yaml").read_text(encoding="utf-8")
    (strategies / "words.yaml").write_text(
        tiny.replace("encoding: hybrid", "encoding: sparse_only"), encoding="utf-8"
    )
    desk.write(limits=LIMITS)
    assert desk.call("ingest", desk.docs, "--strategy", "words").exit_code == 0
    refused = desk.call("ingest", desk.docs, "--strategy", "tiny")
    assert (refused.exit_code, refused.error["code"]) == (
        2,
        "strategy_mismatch",
    ) and "words" in refused.error["message"]
    # its own strategy, without being named again
    assert desk.call("ingest", desk.docs).exit_code == 0


@pytest.mark.parametrize(("encoding", "retriever", "counts"), ENCODINGS)
def test_a_release_with_one_index_answers_in_every_mode(
    desk: Any, encoding: str, retriever: str, counts: dict[str, int]
) -> None:
    """The retriever that is not there falls back on the other and says so; a hybrid question and
    one without a mode just ask the one there is.
    """
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("encoding: hybrid", f"encoding: {encoding}"),
        encoding="utf-8",
    )
    desk.write(limits=LIMITS)
    told = desk.call("ingest", desk.docs)
    assert told.exit_code == 0 and told.data["embeddings_computed"] == counts["dense"]
    manifest = desk.call("releases", "show").data["manifest"]
    assert (
        manifest["encoding"] == encoding
        and {key: manifest["counts"][key] for key in counts} == counts
    )
    assert (manifest["embedder"] is None) == (retriever == "sparse")
    assert (
        all(check["passed"] for check in manifest["checks"])
        and desk.call("verify", "--all").data["failed"] == 0
    )
    for mode in (None, "sparse", "dense", "hybrid"):
        asked = desk.call(*QUESTION, *(["--mode", mode] if mode else []))
        assert asked.exit_code == 0 and asked.data["effective_mode"] == retriever
        assert (
            asked.data["results"][0]["citation"]["text"] == LIMITS.strip()
            and "50 MB" in asked.data["answer_markdown"]
        )
        other = {"sparse": "dense", "dense": "sparse"}[retriever]
        failed = [
            warning
            for warning in asked.envelope["warnings"]
            if f"the {other} retriever failed" in warning
        ]
        assert bool(failed) == (mode == other)
        assert bool([w for w in asked.envelope["warnings"] if "alone" in w]) == (
            mode in (other, "hybrid")
        )


def test_two_roots_cannot_share_a_name(desk: Any) -> None:
    other = desk.folder / "elsewhere" / "docs"
    other.mkdir(parents=True)
    (other / "a.md").write_text(LIMITS, encoding="utf-8")
    desk.write(limits=LIMITS)
    desk.publish()
    refused = desk.call("ingest", other)
    assert (refused.exit_code, refused.error["code"]) == (
        2,
        "source_taken",
    ) and "--source" in refused.error["message"]
    named = desk.call(
        "ingest", other, "--source", "more", "--tag", "b", "--tag", "a", "--meta", "owner=ops"
    )
    assert [d["source_uri"] for d in named.data["documents"]] == ["more/a.md"]
    sources = desk.call("sources", "list").data["sources"]
    assert [(s["name"], s["root"]) for s in sources] == [
        ("docs", str(desk.docs)),
        ("more", str(other)),
    ]
    listed = desk.call("docs", "list", "--filter", "source=more").data["groups"][0]["documents"]
    assert [(d["filename"], d["tags"]) for d in listed] == [("a.md", ["a", "b"])]


def test_globs_choose_and_sync_retires(desk: Any) -> None:
    desk.write(one=LIMITS, two="# Two\n\nPallets.\n", draft="# Draft\n\nNot yet.\n")
    chosen = desk.call("ingest", desk.docs, "--include", "*.md", "--exclude", "draft*")
    assert (chosen.data["new"], chosen.data["ignored"]) == (2, 1)
    again = desk.call("ingest", desk.docs, "--exclude", "")
    assert (again.data["new"], again.data["ignored"]) == (1, 0)
    assert desk.call("ingest", desk.docs, "--exclude", "draft*", "--sync").data["retired"] == 1
    (desk.docs / "two.md").unlink()
    kept = desk.call("ingest", desk.docs)
    assert (kept.data["retired"], desk.call("docs", "list").data["total"]) == (0, 2)
    synced = desk.call("ingest", desk.docs, "--sync")
    assert (synced.data["retired"], desk.call("docs", "list").data["total"]) == (1, 1)
    everything = desk.call("docs", "list", "--all").data["groups"][0]["documents"]
    assert sorted((d["filename"], d["status"]) for d in everything) == [
        ("draft.md", "retired"),
        ("one.md", "active"),
        ("two.md", "retired"),
    ]


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_renamed_file_is_deleted_under_its_old_name_too(desk: Any, mode: str) -> None:
    desk.write(limits=LIMITS, two="# Two\n\nPallets.\n")
    desk.publish()
    (desk.docs / "limits.md").rename(desk.docs / "rules.md")
    assert desk.call("ingest", desk.docs, "--sync").data["retired"] == 1
    planned = desk.call("docs", "delete", "rules.md", "--mode", mode)
    assert "Deleted with it, for they had the same file" in planned.error["message"]
    gone = desk.call("docs", "delete", "rules.md", "--mode", mode, "--yes")
    assert "Deleted with it: docs/limits.md." in gone.data["markdown"]
    back = desk.call("releases", "rollback")
    assert back.exit_code == (0 if mode == "soft" else 1)  # a purge drops what holds the file
    for name in ("limits.md", "rules.md"):
        shown = desk.call("docs", "show", name, "--all")
        assert "50 MB" not in json.dumps(shown.envelope)
    asked = desk.call("query", "How large may an upload be?").data
    assert all("two.md" in json.dumps(row) for row in asked["results"])
    if mode == "hard":
        for name in ("docs/limits.md", "docs/rules.md"):
            proof = desk.call("gc", "--prove", name).data
            assert proof["total"] == 0, proof


def test_text_output_reads_alone(library: Any) -> None:
    shown = CliRunner().invoke(main, list(QUESTION))
    assert shown.exit_code == 0 and "The upload limit is 50 MB. [1]" in shown.stdout
    assert (
        "docs/limits.md, Limits, line 3" in shown.stdout
        and not shown.stdout.lstrip().startswith("{")
    )
    failed = CliRunner().invoke(main, ["query", ""])
    assert (
        failed.exit_code == 2
        and failed.stdout == ""
        and failed.stderr.startswith("error [empty_query]: ")
    )
    assert CliRunner().invoke(main, ["query"]).exit_code == 2
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("docs", "list"),
        ("docs", "list", "--group-by", "source"),
        ("sources", "list"),
        ("releases", "list"),
        ("releases", "show"),
        ("trace", "list"),
        ("verify", "--all"),
        ("doctor",),
        ("status",),
        QUESTION,
        (*QUESTION, "--no-rerank", "--no-infer"),
    ],
    ids=" ".join,
)
def test_every_reading_command_answers_in_text_and_as_an_envelope(
    library: Any, arguments: tuple[str, ...]
) -> None:
    text = CliRunner().invoke(main, list(arguments))
    assert text.exit_code == 0 and text.stdout.strip()
    answer = library.call(*arguments)
    assert answer.exit_code == 0 and set(answer.envelope) == {
        "schema_version",
        "ok",
        "trace_id",
        "data",
        "warnings",
        "error",
    }
    assert answer.data["markdown"]


def test_the_environment_counts_more_than_the_file(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_NAMESPACE", "team")
    desk.write(limits=LIMITS)
    assert desk.call("ingest", desk.docs).data["documents"][0]["version_id"].startswith("team.")
    assert "50 MB" in desk.call(*QUESTION).data["answer_markdown"]
    assert desk.call(*QUESTION, "--namespace", "default").error["code"] == "unknown_namespace"


def test_an_unexpected_error_is_an_envelope_too(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads the envelope must find one whatever happened; the person finds the stack
    trace on stderr.
    """

    def broken(settings: Any) -> Any:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(doctor, "examine", broken)
    ended = CliRunner().invoke(main, ["doctor", "--json"])
    envelope = json.loads(ended.stdout)
    assert (
        ended.exit_code == 1
        and envelope["error"]["code"] == "internal_error"
        and "RuntimeError" in envelope["error"]["message"]
    )
    assert "nobody thought of this" in ended.stderr


def test_an_interrupted_command_prints_its_envelope(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    option = click.Option(["--json"], is_flag=True, expose_value=False)
    program = Program(commands=[click.Command("wait", callback=interrupt, params=[option])])
    with pytest.raises(SystemExit) as ended:
        program.main(["wait", "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.4, "12 s"), (89.9, "90 s"), (300.0, "5 min"), (5399.0, "90 min"), (9000.0, "2.5 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert progress.format_duration(seconds) == text


def test_options_given_twice_become_lists_and_json_is_read() -> None:
    found = output.parse_pairs(("tags=a", "tags=b", "page_start=3", "lang=zh"), "--filter")
    assert found == {"tags": ["a", "b"], "page_start": 3, "lang": "zh"}
    assert output.parse_pairs(('page_start={"$gte": 2}',), "--filter") == {
        "page_start": {"$gte": 2}
    }


def test_several_libraries_answer_one_question(desk: Any) -> None:
    desk.write(limits=LIMITS)
    desk.publish(desk.docs / "limits.md")
    desk.write(leave="# Leave\n\nSick leave needs a note after 3 days.\n")
    desk.publish(desk.docs / "leave.md", namespace="hr")
    both = ("--namespace", "default", "--namespace", "hr")
    asked = desk.call("query", "When does sick leave need a note?", *both)
    assert asked.data["citations"][0]["namespace"] == "hr" and set(asked.data["releases"]) == {
        "default",
        "hr",
    }
    assert desk.call(*QUESTION, *both).data["citations"][0]["namespace"] == "default"
    for wrong in (("--doc", "limits.md"), ("--release", "x")):
        assert desk.call(*QUESTION, *both, *wrong).exit_code == 2
    then = desk.call(*QUESTION, "--namespace", "default", "--release", "2999-12").data
    assert then["release_id"] == asked.data["releases"]["default"]
    assert "namespace" not in desk.call(*QUESTION, "--namespace", "default").data["citations"][0]
    alone = "Of library 'default' alone; `--namespace` names another: hr."
    words = ["docs", "list"]
    assert CliRunner().invoke(main, words).output.rstrip().endswith(alone)
    assert "alone" not in CliRunner().invoke(main, [*words, "--namespace", "hr"]).output
    proved = desk.call("verify", "--all").data
    assert (proved["checked"], proved["failed"], set(proved["libraries"])) == (
        2,
        0,
        {"default", "hr"},
    )
    assert proved["markdown"].startswith("**default**: 1 chunk checked against the raw bytes, 0")
    assert desk.call("verify", "--all", "--namespace", "hr").data["checked"] == 1
    next(desk.store.releases_dir("default").glob("*/manifest.json")).unlink()
    lost = desk.call("verify", "--all")
    assert (lost.exit_code, lost.data["checked"], lost.data["failed"]) == (1, 1, 1)
    assert "[unknown_release] no release" in lost.data["libraries"]["default"]["markdown"]
    assert ", default library default\n" in desk.call("status").data["markdown"]


def test_an_import_without_a_key_says_that_no_signature_was_checked(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(limits=LIMITS)
    desk.publish(desk.docs / "limits.md")
    monkeypatch.setenv("RAG_EXPORT_KEY", "a key of sixteen or more")
    written = desk.call("releases", "export", tmp_path / "limits.tar").data
    assert written["markdown"].endswith(" MB, signed")
    monkeypatch.delenv("RAG_EXPORT_KEY")
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "elsewhere"))
    told = desk.call("releases", "import", tmp_path / "limits.tar").data["markdown"]
    assert " MB, signature not checked\nWarning: RAG_EXPORT_KEY is not set, so" in told


def test_one_of_several_libraries_has_to_be_named_but_for_lists_of_all(desk: Any) -> None:
    for name in ("one", "two"):
        desk.write(**{name: f"# {name}\n\nA text of {name}.\n"})
        desk.publish(desk.docs / f"{name}.md", namespace=name)
        with desk.ledger() as ledger:
            ledger.add_job("ingest", name, {})
    assert desk.call("verify", "--all").data["checked"] == 2
    assert "default library" not in desk.call("status").data["markdown"]
    refused = desk.call("docs", "list").error
    assert refused["code"] == "which_collection"
    assert refused["message"].endswith(
        "none was named: name one of them, in a terminal with `--namespace one`"
    )
    everything = (("jobs", "list", "--all"), ("jobs", "list"), ("sources", "list"))
    for words in everything:
        listed = desk.call(*words).data[words[0]]
        assert {row["namespace"] for row in listed} == {"one", "two"}
    printed = CliRunner().invoke(main, ["sources", "list"]).output
    assert printed == "files (one)  files, 1 document\nfiles (two)  files, 1 document\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_LANG", "zh")
        printed = CliRunner().invoke(main, ["sources", "list"]).output
        assert printed == "files (one)  文件，1 个文档\nfiles (two)  文件，1 个文档\n"
        patch.delenv("RAG_LANG")
        patch.setenv("RAG_NAMESPACE", "two")
        for words in everything:
            found = {row["namespace"] for row in desk.call(*words).data[words[0]]}
            assert found == ({"one", "two"} if "--all" in words else {"two"})
    assert len(desk.call("sources", "list", "--namespace", "one").data["sources"]) == 1


def test_a_folder_stays_in_the_library_that_reads_it(desk: Any) -> None:
    desk.write(limits=LIMITS)
    folder = desk.docs.resolve()
    desk.publish(folder, namespace="hr")
    for words in ((folder, "--sync"), (folder / "limits.md",)):
        assert desk.call("ingest", *words).data["documents"][0]["version_id"].startswith("hr.")
    (elsewhere := desk.folder / "other").mkdir()
    (elsewhere / "pumps.md").write_text("# Pumps\n\nP1 has 3 bar.\n", encoding="utf-8")
    moved = desk.call("ingest", folder.rename(folder.with_name("old")), "--source", folder.name)
    assert moved.error["code"] == "source_taken"
    gone = desk.call("ingest", folder, "--namespace", "hr").data["failures"][0]
    assert gone["code"] == "missing_path" and "--moved --sync`" in gone["reason"]
    unknown = desk.call("ingest", folder, "--namespace", "other")  # never read it
    assert unknown.error["message"].startswith("no file or folder at")
    folder.with_name("old").rename(folder)
    both = desk.call("ingest", folder, elsewhere)
    assert {it["version_id"].partition(".")[0] for it in both.data["documents"]} == {"default"}
    assert "default" in desk.call("ingest", folder, "--sync").data["documents"][0]["version_id"]


def test_a_folder_of_several_libraries_waits_for_a_name(desk: Any) -> None:
    desk.write(limits=LIMITS)
    for name in ("hr", "it"):
        desk.publish(desk.docs.resolve(), namespace=name)
    refused = desk.call("ingest", desk.docs, "--sync").error
    assert refused["code"] == "which_collection" and "(hr, it)" in refused["message"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_NAMESPACE", "named")
        done = desk.call("ingest", desk.docs, "--sync").data["documents"]
    assert done[0]["version_id"].startswith("named.")


def test_failures_that_are_not_listed_are_counted(desk: Any) -> None:
    desk.write(limits=LIMITS)
    for number in range(7):
        (desk.docs / f"broken{number}.pdf").write_bytes(b"%PDF-1.7 no more")
    desk.call("ingest", desk.docs)
    problems = desk.call("status").data["problems"]
    assert sum("docs/broken" in problem for problem in problems) == 5
    assert problems[5] == (
        "default: and 2 more failed; `rag docs list --filter status=failed --namespace default`"
        " lists all"
    )


def test_control_characters_of_a_name_are_shown_and_not_obeyed(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "launch", run_here)
    name = "a\x1b[31mred\x1b]0;title\x07\nnext\x9b\x7f.txt"
    desk.docs.mkdir(exist_ok=True)
    (desk.docs / name).write_text("Escape file says 4545.\n", encoding="utf-8")
    broken = desk.docs / "broken\nname.pdf"
    broken.write_bytes(b"x")
    shown = r"docs/a\x1b[31mred\x1b]0;title\x07\x0anext\x9b\x7f.txt"
    ingested = CliRunner().invoke(main, ["ingest", str(desk.docs)])
    assert r"failed: docs/broken\x0aname.pdf: [broken_file]" in ingested.output
    asked = ("query", "What does the escape file say?")
    for words in (("docs", "list"), asked, (*asked, "--stream"), ("docs", "show", "4545")):
        said = CliRunner().invoke(main, [*words]).output
        assert not set(said) & set("\x1b\x07\x9b\x7f"), words
        if words[-1] != "4545":
            assert shown in said, words
    (citation,) = desk.call(*asked).data["citations"]
    assert citation["source_uri"] == f"docs/{name}"
    missing = CliRunner().invoke(main, ["docs", "show", "no\x1bsuch"])
    assert "\x1b" not in missing.output and missing.exit_code == 1


def test_a_streamed_answer_comes_before_its_sources(library: Any) -> None:
    shown = CliRunner().invoke(main, [*QUESTION, "--stream"])
    assert shown.exit_code == 0
    assert (
        shown.stdout.startswith("The upload limit is 50 MB. [1]\n\n")
        and "**Sources**" in shown.stdout
    )
    assert (
        library.call(*QUESTION, "--stream").data["answer_markdown"]
        == "The upload limit is 50 MB. [1]"
    )


def test_help_names_every_command() -> None:
    said = CliRunner().invoke(main, ["--help"]).stdout
    names = "ingest preview query docs sources releases verify trace serve doctor status".split()
    assert [name for name in names if name not in said] == []
    assert Path(cli.__file__).name == "main.py"


def test_doctor_opens_what_is_published(desk: Any) -> None:
    desk.write(gate="# Gate\n\nThe gate opens at six.\n")
    desk.publish()
    assert desk.call("doctor").exit_code == 0
    (release,) = (desk.store.home / "releases" / "default").glob("*/catalog.sqlite")
    release.unlink()
    release.write_bytes(b"SQLite format 3\x00 cut off")
    ended = desk.call("doctor")
    assert ended.exit_code == 1 and "releases of default" in ended.error["message"]


def test_doctor_misses_the_ledger_of_published_releases(desk: Any) -> None:
    desk.write(limits=LIMITS)
    desk.publish()
    for path in desk.store.home.glob("ledger.sqlite*"):
        path.unlink()
    ended = desk.call("doctor")
    assert (ended.exit_code, ended.error["code"]) == (1, "unhealthy")
    (found,) = [f for f in ended.data["findings"] if f["subject"] == "ledger"]
    assert found["level"] == "error" and "put it back from a backup" in found["message"]
    assert found["message"] == desk.call(*QUESTION).error["message"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["docs", "list"], ["status", "--json"], ["no", "--json"]])
def test_output_that_the_disk_does_not_take_is_said_in_one_line(
    library: Any, monkeypatch: pytest.MonkeyPatch, args: list[str], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "rag_platform.cli.main", *args]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error [not_printed]: what this command prints could not be")
    assert "(No space left on device)" in ended.stderr and ended.stderr.count("\n") == 1
