"""The tools that verify an answer against its sources and manage a library's expectations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rag_platform.api.proofs import verify_answer
from rag_platform.contract.schema import ExpectationsData
from rag_platform.retrieval.namespaces import require_known
from rag_platform.server.library_tools.definition import (
    Absent,
    Answer,
    Arguments,
    Call,
    Collection,
    Collections,
    Texts,
    ToolSpec,
)

VERIFY = """Check citations, or your own answer before you give it: each source is proved by the \
bytes of its file, each sentence is proven, changed since or unsupported, with the reason."""

EXPECT = """Pin what a question must find, or its refusal, for every release. Only if the user \
asks."""


class VerifyArguments(Arguments):
    answer: str = Field(
        "",
        description="With its [n] marks or chunk:// links; without either each sentence is"
        " searched.",
    )
    sources: Texts | Absent = Field(
        None, description="chunk:// links or ids in the order of [1], [2]..."
    )
    collections: Collections = None


class ExpectArguments(Arguments):
    action: Literal["add", "list", "remove"] | Absent = Field(
        None, description="Default: what the rest asks for."
    )
    question: str = Field("", description="To add.")
    file: str = Field("", description="End of the path to be found.")
    section: str = Field("", description="The heading above `text`.")
    text: str = Field("", description="Words a hit must hold.")
    refuse: bool = Field(False, description="The library must not know.")
    case_id: str = Field("", description="To remove.")
    collection: Collection = None


def verify(call: Call, arguments: VerifyArguments) -> Answer:
    return Answer(
        verify_answer(
            call.library, arguments.answer, arguments.sources or (), arguments.collections or ()
        )
    )


def expect(call: Call, arguments: ExpectArguments) -> Answer:
    """Add or remove an expectation if asked to, and list all of them."""
    from rag_platform.evaluation import expectations
    from rag_platform.evaluation.cases import case_data

    store, namespace = call.library.store, call.namespace(arguments.collection)
    require_known(call.library, namespace)
    implied = "add" if arguments.question else "remove" if arguments.case_id else "list"
    action, done = arguments.action or implied, ""
    if action == "add":
        case = expectations.expectation(
            arguments.question,
            file=arguments.file,
            section=arguments.section,
            text=arguments.text,
            refuse=arguments.refuse,
        )
        new, warning = expectations.pin_expectation(call.library, namespace, case)
        done = f"{case.case_id} {'is pinned' if new else 'was pinned already'}."
        done += f" Warning: {warning}." if warning else ""
    elif action == "remove":
        case = expectations.remove_expectation(store, namespace, arguments.case_id)
        done = f"{case.case_id} is no longer expected."
    cases = expectations.read_expectations(store, namespace).cases
    lines = [done, *(f"- `{case.case_id}` {case.query}" for case in cases)]
    data: ExpectationsData = {
        "markdown": "\n".join(filter(None, lines)) or f"Nothing is expected of {namespace} yet.",
        "namespace": namespace,
        "expectations": [case_data(case) for case in cases],
    }
    return Answer(data)


TOOLS = (
    ToolSpec("verify", "Check an answer", VERIFY, VerifyArguments, verify),
    ToolSpec(
        "expect",
        "Expect an answer",
        EXPECT,
        ExpectArguments,
        expect,
        scope="write",
        allowed_by="expect",
    ),
)
