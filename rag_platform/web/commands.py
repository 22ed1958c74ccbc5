"""Messages in pages, with links in place of the commands that they name."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from rag_platform.messages import translate, translate_filled

# command: (page that does the same, the page about its argument, the name of the link)
_PAGES = {
    "status": ("/browser?status=failed", "", "Failed documents"),
    "ingest": ("/ingestion", "", "Add documents"),
    "query": ("/", "", "Ask a question"),
    "docs list": ("/browser", "", "Documents"),
    "docs show": ("/browser", "/documents/{}/{}", "Document"),
    "docs history": ("/browser", "/documents/{}/{}", "Document"),
    "docs diff": ("/browser", "/documents/{}/{}", "Document"),
    "docs delete": ("/browser", "/documents/{}/{}/delete", "Delete document"),
    "drafts": ("/drafts", "/drafts/{}/{}", "Drafts"),
    "jobs retry": ("/ingestion", "/ingestion/jobs/{1}", "Try again"),
    "jobs": ("/ingestion", "/ingestion/jobs/{1}", "Jobs"),
    "releases list": ("/releases", "", "Releases"),
    "releases show": ("/releases", "", "Releases"),
    "releases diff": ("/releases", "", "Releases"),
    "releases rollback": ("/releases", "", "Releases"),
    "releases forward": ("/releases", "", "Releases"),
    "releases publish": ("/releases", "", "Releases"),
    "trace": ("/query-traces", "/traces/{1}", "Trace"),
    "eval list": ("/evaluation", "", "Evaluation"),
    "eval run": ("/evaluation", "", "Evaluation"),
    "expect": ("/evaluation/expectations", "", "Expectations"),
}
_WITH_OPTIONS = {"--namespace", "--override", "--all", "--dropped"}  # which the pages offer
_QUOTED = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"[A-Z_]+")  # such as DOC


@pass_context
def show_message(context: Context, message: str) -> Markup:
    """A message that already contains its values, translated, with a link to the page in place of
    a command that a page can do.
    """
    language, namespace = context["language"], context["namespace"]
    parts = _QUOTED.split(translate_filled(message, language))
    return Markup("").join(
        _show_quoted(part, language, namespace) if at % 2 else part for at, part in enumerate(parts)
    )


def _show_quoted(text: str, language: str, namespace: str) -> Markup:
    if not text.startswith("rag "):
        return Markup("<code>{}</code>").format(text)
    if address := _page_of(text, namespace):
        path, name = address
        return Markup('“<a href="{}">{}</a>”').format(path, translate(name, language))
    return Markup("<code>{}</code> {}").format(text, translate("(in a terminal)", language))


def _page_of(command: str, namespace: str) -> tuple[str, str] | None:
    """(address, name) of the page that does the same as the command; None if there is none.

    >>> _page_of("rag jobs retry j7", "notes")
    ('/ingestion/jobs/j7?namespace=notes', 'Try again')
    >>> _page_of("rag docs delete DOC --namespace lib", "")
    ('/browser?namespace=lib', 'Delete document')
    >>> _page_of("rag rebuild --full", "notes")
    """
    _, *words = command.split()
    if any(word.startswith("--") and word not in _WITH_OPTIONS for word in words):
        return None
    found = _PAGES.get(" ".join(words[:2])) or _PAGES.get(words[0])
    if found is None:
        return None
    page, about, name = found
    if "--namespace" in words[:-1]:
        namespace = words[words.index("--namespace") + 1]
    argument = words[2] if len(words) > 2 else ""
    if about and argument and not argument.startswith("-") and not _PLACEHOLDER.fullmatch(argument):
        page = about.format(quote(namespace, safe=""), quote(argument, safe=""))
    if namespace:
        page += ("&" if "?" in page else "?") + urlencode({"namespace": namespace})
    return page, name
