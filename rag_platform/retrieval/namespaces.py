"""The namespaces of a call, by default where it names none; shared by server and command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rag_platform import access
from rag_platform.errors import InputError, RagError, unknown_namespace
from rag_platform.ledger.ledger import open_ledger
from rag_platform.retrieval.library import Library

if TYPE_CHECKING:  # loads the readers of web pages
    from rag_platform.intake.discovery import SourceOptions

FoundT = TypeVar("FoundT")


def known_namespaces(library: Library) -> list[str]:
    """The namespaces that the caller may see, sorted: with a published release or in the ledger.
    Raises as `open_ledger`.
    """
    known = set(library.namespaces())
    if library.store.has_ledger():
        with closing(open_ledger(library.store)) as ledger:
            known |= set(ledger.namespaces())
    return sorted(filter(access.current().may_see, known))


def require_known(library: Library, namespace: str) -> None:
    """Raises NotFoundError for a namespace that does not exist or that the caller may not see; the
    default one need not exist yet.
    """
    library.require_visible(namespace)
    if namespace != access.current().default_namespace(library.settings.default_namespace):
        require_existing(library, namespace)


def require_existing(library: Library, namespace: str) -> None:
    """Raises NotFoundError for a namespace that does not exist, and as `open_ledger` for one
    without a published release.
    """
    if namespace in library.namespaces():
        return
    if namespace not in (known := known_namespaces(library)):
        raise unknown_namespace(namespace, known)


def find_in_namespaces(names: Iterable[str], look: Callable[[str], FoundT | None]) -> FoundT | None:
    """What `look` finds in the first namespace that has it. One that cannot be opened does not hide
    the others; its error is raised where none of them has it.
    """
    broken: RagError | None = None
    for name in names:
        try:
            if (found := look(name)) is not None:
                return found
        except InputError:
            raise
        except RagError as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return None


def choose_namespaces(library: Library, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The namespaces of a question: those named, else the default if it was configured (in
    settings.yaml or by RAG_NAMESPACE), else every published one, else those that are not
    published yet, else the default.
    """
    if names:
        return tuple(dict.fromkeys(names))
    settings, caller = library.settings, access.current()
    default = caller.default_namespace(settings.default_namespace)
    if "default_namespace" in settings.model_fields_set and default == settings.default_namespace:
        return (default,)
    return tuple(library.namespaces() or known_namespaces(library)) or (default,)


def choose_to_ingest(library: Library, inputs: Iterable[object], options: SourceOptions) -> str:
    """The namespace that files and folders go to: the default one if it was configured, else the
    one that has the source of all of them, by its folder or the name in the options, else the
    default.

    Raises InputError `which_collection` where several others have it.
    """
    settings, caller = library.settings, access.current()
    default = caller.default_namespace(settings.default_namespace)
    paths = [item.resolve() for item in inputs if isinstance(item, Path)]
    configured = "default_namespace" in settings.model_fields_set
    if not paths or configured or not library.store.has_ledger():
        return default
    with closing(open_ledger(library.store)) as ledger:
        sources = [it for it in ledger.sources() if it.root and caller.may_see(it.namespace)]
    having = [
        {
            it.namespace
            for it in sources
            if path.is_relative_to(it.root)
            or it.name == (options.source or (path.name if options.moved else ""))
        }
        for path in paths
    ]
    chosen = sorted(set.intersection(*having))
    if len(chosen) < 2 or default in chosen:
        return chosen[0] if len(chosen) == 1 else default
    raise _which_one(chosen)


def choose_namespace(library: Library, names: Sequence[str] = ()) -> str:
    """The namespace of a call that reads one: as `choose_namespaces`, of several the default.

    Raises InputError `too_many_collections` where several are named, `which_collection` where none
    of several is the default.
    """
    chosen = choose_namespaces(library, names)
    if len(chosen) == 1:
        return chosen[0]
    if names:
        listed = ", ".join(chosen)
        raise InputError(
            f"{len(chosen)} libraries were named ({listed}); a call reads one: ask one after the"
            " other",
            code="too_many_collections",
        )
    if library.settings.default_namespace in chosen:
        return library.settings.default_namespace
    raise _which_one(chosen)


def _which_one(names: Sequence[str]) -> InputError:
    return InputError(
        f"there are {len(names)} libraries ({', '.join(names)}) and none was named: name one of"
        f" them, in a terminal with `--namespace {names[0]}`",
        code="which_collection",
        collections=list(names),
    )
