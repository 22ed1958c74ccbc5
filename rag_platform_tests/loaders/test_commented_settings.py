"""The comments of a configuration file become text."""

from __future__ import annotations

import time
from pathlib import Path

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.commented_settings import comment_edits
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise

CONF = """\
# ###### Limits ######
#
# How many clients may
# connect at once.
# max-clients 100
# save 900 <changes>
[server]
\t; Seconds to wait.
\t# wait = 5
#port = 80
host = a # here
"""


def test_words_of_comments_are_text_and_switched_off_settings_keep_their_mark(
    tmp_path: Path,
) -> None:
    """Only lines that begin with a mark change."""
    path = tmp_path / "some.conf"
    path.write_text(CONF)
    facts = TextLoader().load(path, path.name)
    assert facts.text == CONF
    assert normalise(facts, (), CleaningConfig()).text == (
        "Limits\n\nHow many clients may\nconnect at once.\n#max-clients 100\n"
        "#save 900 <changes>\n[server]\n"
        "Seconds to wait.\n#wait = 5\n#port = 80\nhost = a # here\n"
    )


def test_the_text_of_values_is_no_comment(tmp_path: Path) -> None:
    """Words among the items of an array keep their mark."""
    path = tmp_path / "some.toml"
    path.write_bytes(
        b'a = """\n# one\n"""\n# On a\n# pump.\nb = [\n  # for\n  # all\n  "c",\n]\nd = e \\\n# f\n'
        b"# max-clients 100\r\n#\r\n"
    )
    facts = TextLoader().load(path, path.name)
    assert normalise(facts, (), CleaningConfig()).text == (
        'a = """\n# one\n"""\nOn a\npump.\nb = [\n#for\n#all\n  "c",\n]\nd = e \\\n# f\n'
        "#max-clients 100\n\n"
    )


def test_long_lines_take_linear_time() -> None:
    began = time.process_time()
    for part in ("a_", "a 1 ", "#", " ", "'" * 4, "# a\n", "<"):
        comment_edits(f"# {part * 50_000}!")
    assert time.process_time() - began < 5
