"""Ranking metrics of the expected documents and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.metrics import per_query

_RANKED = {"hit_rate": "HitRate", "recall": "Recall", "mrr": "MRR", "ndcg": "nDCG"}


@dataclass(frozen=True)
class Retrieval:
    """Hit rate, recall, MRR and nDCG at each k for cases with labels; a question without hits
    counts 0. `retrieval.coverage` is the share of hits within the case's `doc_scope`.
    """

    VERSION: ClassVar[str] = "4"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        found: CaseMetrics = {item.case.case_id: {} for item in items}
        ranked = [item for item in items if any(item.labels.grades.values())]
        if ranked:
            runs = {item.case.case_id: item.labels.rank(item.result.hits) for item in ranked}
            grades = {item.case.case_id: item.labels.grades for item in ranked}
            names = {
                f"{measure}@{k}": f"retrieval.{name}@{k}"
                for name, measure in _RANKED.items()
                for k in k_values
            }
            for measure, values in per_query(runs, grades, list(names)).items():
                for case_id, value in values.items():
                    found[case_id][names[measure]] = value
        for item in items:
            if item.in_scope is not None:
                inside = sum(hit.chunk_id in item.in_scope for hit in item.result.hits)
                share = inside / len(item.result.hits) if item.result.hits else 0.0
                found[item.case.case_id]["retrieval.coverage"] = share
        return found
