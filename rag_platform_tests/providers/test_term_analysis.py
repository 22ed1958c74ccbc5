from __future__ import annotations

from rag_platform.ir import LexicalRow
from rag_platform.providers.term_analysis import Analysis


def test_the_term_of_a_symbol_stands_for_itself() -> None:
    row = Analysis().row(LexicalRow("c1", "d1", "Ranges like `1..=5` include runs.", ""))
    assert "§..=" in row.text.split()
    assert Analysis().known_terms("§..=") == ["§..="]
    assert Analysis().known_terms("runs, run") == ["run"]
