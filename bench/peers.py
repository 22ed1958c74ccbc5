"""Hybrid retrieval of LlamaIndex and Haystack over chunks and vectors that another process wrote;
`bench/query.py --peers PYTHON` runs it.

    PYTHON bench/peers.py FOLDER K

FOLDER holds chunks.jsonl (id, text), vectors.npy, questions.jsonl (text) and questions.npy.
Printed: one JSON line for each peer with the milliseconds of every question, or the reason why
there are none. LlamaIndex: QueryFusionRetriever (reciprocal rank) over ChromaVectorStore and
BM25Retriever. Haystack: a pipeline of InMemoryBM25Retriever, InMemoryEmbeddingRetriever and
DocumentJoiner (reciprocal rank). Stores are built before the clock starts; each question is asked
once to warm up and then three times, and counts with its fastest time; of a peer whose first
question takes more than a second ten are asked, once each.

PYTHON needs: llama-index-core llama-index-retrievers-bm25 llama-index-vector-stores-chroma
haystack-ai
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 3
SLOW_SECONDS, FEW = 1.0, 10
BATCH = 5_000


def read(folder: Path) -> tuple[list[dict[str, str]], Any, list[str], Any]:
    """The chunks, their vectors, the questions and theirs."""
    chunks, questions = (
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("chunks.jsonl", "questions.jsonl")
    )
    return chunks, np.load(folder / "vectors.npy"), questions, np.load(folder / "questions.npy")


def llama_index(folder: Path, k: int) -> Callable[[int], list[str]]:
    """A hybrid retriever of LlamaIndex; it gives the ids of the hits for a question's number."""
    import chromadb
    from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.core.schema import QueryBundle, TextNode
    from llama_index.retrievers.bm25 import BM25Retriever
    from llama_index.vector_stores.chroma import ChromaVectorStore

    chunks, vectors, questions, asked = read(folder)
    nodes = [
        TextNode(id_=c["id"], text=c["text"], embedding=v.tolist())
        for c, v in zip(chunks, vectors, strict=True)
    ]
    client = chromadb.PersistentClient(str(folder / "llama"))
    collection = client.create_collection(
        "chunks", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    embedding = MockEmbedding(embed_dim=vectors.shape[1])
    context = StorageContext.from_defaults(
        vector_store=ChromaVectorStore(chroma_collection=collection)
    )
    index = VectorStoreIndex([], storage_context=context, embed_model=embedding)
    for start in range(0, len(nodes), BATCH):
        index.insert_nodes(nodes[start : start + BATCH])
    retrievers = [
        index.as_retriever(similarity_top_k=k),
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=k),
    ]
    fusion = QueryFusionRetriever(
        retrievers,
        llm=MockLLM(),
        mode="reciprocal_rerank",
        similarity_top_k=k,
        num_queries=1,
        use_async=False,
    )

    def ask(number: int) -> list[str]:
        bundle = QueryBundle(questions[number], embedding=asked[number].tolist())
        return [hit.node.node_id for hit in fusion.retrieve(bundle)]

    return ask


def haystack(folder: Path, k: int) -> Callable[[int], list[str]]:
    """A hybrid pipeline of Haystack; it gives the ids of the hits for a question's number."""
    from haystack import Document, Pipeline
    from haystack.components.joiners import DocumentJoiner
    from haystack.components.retrievers.in_memory import (
        InMemoryBM25Retriever,
        InMemoryEmbeddingRetriever,
    )
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    chunks, vectors, questions, asked = read(folder)
    store = InMemoryDocumentStore(
        embedding_similarity_function="dot_product", return_embedding=False
    )
    store.write_documents(
        [
            Document(id=c["id"], content=c["text"], embedding=v.tolist())
            for c, v in zip(chunks, vectors, strict=True)
        ]
    )
    pipeline = Pipeline()
    pipeline.add_component("words", InMemoryBM25Retriever(store, top_k=k))
    pipeline.add_component("vectors", InMemoryEmbeddingRetriever(store, top_k=k))
    pipeline.add_component("join", DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=k))
    pipeline.connect("words", "join")
    pipeline.connect("vectors", "join")

    def ask(number: int) -> list[str]:
        found = pipeline.run(
            {
                "words": {"query": questions[number]},
                "vectors": {"query_embedding": asked[number].tolist()},
            }
        )
        return [document.id for document in found["join"]["documents"]]

    return ask


def main() -> None:
    """Measure both peers and print what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("k", type=int)
    given = parser.parse_args()
    folder, k = given.folder, given.k
    count = len((folder / "questions.jsonl").read_text(encoding="utf-8").splitlines())
    for name, made in (("LlamaIndex", llama_index), ("Haystack", haystack)):
        try:
            started = time.perf_counter()
            ask = made(folder, k)
            built = time.perf_counter() - started
            started = time.perf_counter()
            assert ask(0)
            slow = time.perf_counter() - started > SLOW_SECONDS
            taken = []
            for number in range(min(FEW, count) if slow else count):
                assert slow or ask(number)
                rounds = []
                for _ in range(1 if slow else ROUNDS):
                    started = time.perf_counter()
                    ask(number)
                    rounds.append(1000 * (time.perf_counter() - started))
                taken.append(min(rounds))
            sys.stdout.write(
                json.dumps({"peer": name, "milliseconds": taken, "built": built}) + "\n"
            )
        except Exception as error:  # one peer that fails says nothing about the other
            sys.stdout.write(
                json.dumps({"peer": name, "error": f"{type(error).__name__}: {error}"[:300]}) + "\n"
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
