"""LlamaIndex' starter with an embedding of its own class: PYTHON starter.py FOLDER QUESTION."""

from __future__ import annotations

import sys

import e5
from llama_index.core import Settings, SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding


class LocalE5(BaseEmbedding):
    """The embedding, by LlamaIndex' base class for one's own."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return e5.embed([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return e5.embed(texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return e5.embed([query], query=True)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


folder, question = sys.argv[1:]
Settings.embed_model = LocalE5()
documents = SimpleDirectoryReader(folder, recursive=True).load_data()
index = VectorStoreIndex.from_documents(documents)
hits = index.as_retriever(similarity_top_k=3).retrieve(question)
assert hits[0].node.metadata["file_path"]
for hit in hits:
    sys.stdout.write(f"{hit.node.metadata['file_path']}\n{hit.node.get_content()}\n")
nodes = index.docstore.docs.values()
size = sum(len(node.get_content()) for node in nodes)
sys.stdout.write(f"{len(documents)} documents, {len(nodes)} chunks of {size} characters\n")
