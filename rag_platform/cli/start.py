"""Commands to get started: a demo with the shipped samples, and a config to edit."""

from __future__ import annotations

import time
from pathlib import Path

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers, finish_job
from rag_platform.config.folders import DEMO, SAMPLES, SHIPPED, config_dir
from rag_platform.ir import Json

# in Chinese, about a table in a PDF, an exact identifier
QUESTIONS = (
    "主机失去心跳多久后备机接管？",
    "What is the maximum throughput of the PX-40?",
    "PPR-9087",
)
_EDITED = ("settings.yaml", "gates.yaml", "strategies/*.yaml")


@click.command()
@answers(own_trace=True)
def demo(context: Context) -> Json:
    """Ingest the shipped samples into the library `demo` and ask them three questions."""
    from rag_platform.answering.engine import answer
    from rag_platform.api.query_data import fit_query
    from rag_platform.ingestion.job_start import start_ingest
    from rag_platform.intake.receiving import ReceiveOptions
    from rag_platform.ir import QueryRequest

    started_at = time.perf_counter()
    workspace = context.root.workspace(DEMO)
    started = start_ingest([SAMPLES], DEMO, workspace, ReceiveOptions(moved=True))
    ingested = finish_job(context, started, started_at)
    if not ingested["ok"]:
        return ingested
    parts, asked = [str(ingested["data"]["markdown"])], []
    for question in QUESTIONS:
        data, _ = fit_query(
            answer(context.library, QueryRequest(question, DEMO)),
            detail="brief",
            max_tokens=context.settings.server.result_tokens,
        )
        parts.append(f'$ rag query "{question}" --namespace {DEMO}\n\n{data["markdown"]}')
        asked.append(data)
    parts.append(
        "Next: `rag ingest FOLDER` takes in your own documents; then ask with `rag query YOUR"
        " QUESTION`, or in a browser with `rag ui`"
    )
    return envelopes.envelope(
        {"markdown": "\n\n".join(parts), "ingest": ingested["data"], "questions": asked},
        str(ingested["trace_id"]),
    )


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--all", "everything", is_flag=True, help="Prompts, datasets and logging too.")
@answers(own_trace=True)
def init(context: Context, folder: Path | None, everything: bool) -> Json:
    """Write a config to edit: settings, gates and strategies. What is there already stays.

    FOLDER is by default RAG_CONFIG, else the user's config folder of the platform. A file that you
    delete there counts as the shipped one again.
    """
    target = (folder or config_dir()).expanduser().resolve()
    wanted = ("**/*.yaml",) if everything else _EDITED
    written, kept = [], []
    for source in sorted(path for pattern in wanted for path in SHIPPED.glob(pattern)):
        name = source.relative_to(SHIPPED).as_posix()
        path = target / name
        if path.exists():
            kept.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
        written.append(name)
    lines = [f"{target}", *(f"- wrote {name}" for name in written)]
    lines += [f"- kept {name}, which was there" for name in kept]
    if target != config_dir().resolve():
        lines.append(f"To use it: export RAG_CONFIG={target}")
    return {"markdown": "\n".join(lines), "folder": str(target), "written": written, "kept": kept}
