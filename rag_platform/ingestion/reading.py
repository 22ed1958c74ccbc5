"""Starts reading and building versions ahead of their turn, so that all cores are busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rag_platform.documents.outputs import Outputs
from rag_platform.documents.versions import VersionBuild, read_facts, read_in_child
from rag_platform.errors import DocumentError
from rag_platform.ingestion import version_workers
from rag_platform.ingestion.request import Request, VersionRun
from rag_platform.intake.isolation import pool
from rag_platform.ir import Version
from rag_platform.observability import tracing
from rag_platform.processes.worker import Workers
from rag_platform.releases.version_bundles import fetch_version


class Reader:
    """Has child processes read the facts of the next versions, or build them entirely. Calls
    `announce` with a message and `announce_pages` with (pages read, pages in all, source_uri), from
    any thread.
    """

    def __init__(
        self,
        versions: Sequence[Version],
        request: Request,
        announce: Callable[[str], None],
        announce_pages: Callable[[int, int, str], None],
    ) -> None:
        self._versions, self._request, self._announce = versions, request, announce
        self._announce_pages = announce_pages
        self._pages: dict[str, tuple[int, int]] = {}  # version_id to (pages read, pages in all)
        self._counting = threading.Lock()
        self._runs: dict[int, VersionRun] = {}  # version number to run, for runs started ahead
        self._roots: dict[str, dict[str, str]] = {}
        self._closed = threading.Event()
        workspace = request.workspace
        self._workers = Workers(workspace.settings.embedding_processes)
        self._plan: bytes | None = None  # for child processes that build versions, if worthwhile
        if self._workers.count > 1 and version_workers.are_worthwhile(workspace.strategy, versions):
            self._plan = version_workers.Plan(
                workspace.store,
                workspace.settings,
                workspace.strategy,
                request.profiles,
                request.stages,
            ).pack()
        self._threads = ThreadPoolExecutor(pool().size, thread_name_prefix="read")

    def begin(self, number: int) -> VersionRun:
        """The run of one version; also starts the runs of the next ones where that is safe."""
        ahead = 2 * self._workers.count + 1 if "facts" in self._request.stages else 0
        for later in range(number, min(number + ahead, len(self._versions))):
            version = self._versions[later]
            if later in self._runs or any(
                version.file_sha256 == run.version.file_sha256 for run in self._runs.values()
            ):
                continue
            if self._plan is not None and self._is_built_apart(version):
                run = self._runs[later] = self._start(version)
                work = run.work
                task = version_workers.Task(
                    self._plan,
                    version,
                    work.origin,
                    work.root,
                    work.force,
                    work.base_url,
                    work.decision,
                    tracing.link(),
                )
                work.built = self._workers.submit(version_workers.build_apart, task)
            elif later <= number + pool().size and self._is_read_ahead(version):
                run = self._runs[later] = self._start(version)
                run.work.reading = self._threads.submit(tracing.carry(read_facts), run.work)
        return self._runs.pop(number, None) or self._start(self._versions[number])

    def close(self) -> None:
        """Stop reads at their next page, and kill the children that build."""
        self._closed.set()
        self._workers.close()
        self._threads.shutdown(cancel_futures=True)

    def _is_built_apart(self, version: Version) -> bool:
        return not self._request.is_edited(version) and not read_in_child(version)

    def _is_read_ahead(self, version: Version) -> bool:
        outputs = Outputs(version, self._request.workspace.store, self._request.profiles)
        return read_in_child(version) and (
            version.version_id in self._request.forced or not outputs.summary_path.is_file()
        )

    def _start(self, version: Version) -> VersionRun:
        workspace = self._request.workspace
        ledger = workspace.ledger
        if not workspace.store.raw_path(version.file_sha256).is_file():
            fetch_version(workspace.store, version, self._request.profiles)
        document = ledger.document(version.namespace, version.doc_id)
        if version.namespace not in self._roots:
            self._roots[version.namespace] = {
                source.name: source.root for source in ledger.sources(version.namespace)
            }
        root = self._roots[version.namespace].get(document.source)
        on_web = document.origin.startswith(("http:", "https:"))

        def raise_if_closed() -> None:
            if self._closed.is_set():
                raise DocumentError(
                    "the run was ended before the document was read; ingest it again",
                    code="cancelled",
                )

        def on_page(done: int, pages: int) -> None:
            raise_if_closed()
            with self._counting:
                self._pages[version.version_id] = (done, pages)
                sums = [sum(figures) for figures in zip(*self._pages.values(), strict=True)]
            self._announce_pages(sums[0], sums[1], version.source_uri)

        def on_image(doing: str, image: int, images: int) -> None:
            raise_if_closed()
            self._announce(f"{version.source_uri}: {doing} image {image} of {images}")

        work = VersionBuild(
            version,
            workspace.strategy,
            workspace.settings,
            workspace.store,
            Path(document.origin) if document.origin and not on_web else None,
            Path(root) if root else None,
            version.version_id in self._request.forced,
            on_page,
            on_image,
            deferred=True,
            base_url=document.origin if on_web else "",
            decision=self._request.decisions.get(version.version_id, "continue"),
            profiles=self._request.profiles,
        )
        live = document.live_version
        return VersionRun(
            work, None if live in (None, version.version_id) else ledger.version(live)
        )
