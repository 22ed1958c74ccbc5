"""The comments of a configuration file become text."""

from __future__ import annotations

from pathlib import Path

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise

CONF = """\
## Limits
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
