"""Knowledge settings become mounted sources: the part of ``worker.bootstrap`` that needs room of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from tasks.knowledge.secrets import allow_list
from tasks.knowledge.spec import KnowledgeSpec
from tasks.knowledge.validate import Checked, mounted_nodes
from tasks.ports import Clock, KnowledgeMounts, KnowledgeNode, KnowledgeSource, MountedSource
from worker.adapters.knowledge.calling import Environment
from worker.adapters.knowledge.shelf import Build, SourceShelf
from worker.adapters.knowledge.stores import EmbeddingService, VectorSources
from worker.knowledge_config import usable_files
from worker.mounted_weknora import WeknoraSource, over_mcp, over_rest
from worker.outbound import AllowedHosts, Outbound
from worker.settings import Settings, listed, source_variable


@dataclass(frozen=True)
class KnowledgeShop:
    """Everything built from the knowledge settings, each part when it is first asked for."""

    settings: Settings
    clock: Clock

    @cached_property
    def files(self) -> Checked:
        """Both files. Raises :class:`worker.settings.SettingsError` for one that must not be used."""
        return usable_files(self.settings)

    @cached_property
    def environment(self) -> Environment:
        """What ``{{env.X}}`` may name, as it is when a source is called."""
        return Environment(source_variable, allow_list(listed(self.settings.knowledge.env)))

    @cached_property
    def shelf(self) -> SourceShelf:
        """All sources of the file."""
        return self.shelf_of_specs(self.files.knowledge.knowledge)

    def shelf_of_specs(self, specs: Sequence[KnowledgeSpec]) -> SourceShelf:
        """Sources of other specs than the file's, for commands that change one before they ask it."""
        outbound = Outbound(self._allowed(), self.clock.monotonic)
        vectors = VectorSources(outbound, self.environment, self.clock, self._embeddings())
        weknora: dict[str, Build] = {
            "weknora_rest": lambda spec: WeknoraSource(spec, over_rest, self.environment, outbound, self.clock),
            "weknora_mcp": lambda spec: WeknoraSource(spec, over_mcp, self.environment, outbound, self.clock),
        }
        return SourceShelf(specs, outbound, self.environment, self.clock, vectors, weknora)

    @cached_property
    def mounts(self) -> KnowledgeMounts:
        """What each node mounts. Loads the token table now when anything is mounted: not within the first job."""
        nodes: dict[str, dict[str, KnowledgeNode]] = {}
        for skill, node, what in mounted_nodes(self.files.pipelines):
            sources = tuple(self._mounted(name) for name in what.knowledge_ref)
            if sources:
                nodes.setdefault(skill, {})[node] = KnowledgeNode(sources, what.knowledge_template)
        return KnowledgeMounts(nodes, self.token_counter()) if nodes else KnowledgeMounts()

    @staticmethod
    def token_counter() -> Callable[[str], int]:
        """Counts tokens, its table loaded (0.6 s, 30 MiB): imported only where knowledge is mounted."""
        from worker.adapters.knowledge.tokens import TokenCounter

        counter = TokenCounter()
        counter.warm()
        return counter

    def _mounted(self, source_id: str) -> MountedSource:
        spec = self.shelf.spec(source_id)
        assert spec is not None, "the files were checked"
        return MountedSource(source_id, spec.injection, self.source(source_id))

    def source(self, source_id: str) -> KnowledgeSource:
        """One source with its fallbacks."""
        return self.shelf.source(source_id)

    def _embeddings(self) -> EmbeddingService:
        """The host that an operator set as the embeddings' address is allowed by being set."""
        area = self.settings.knowledge
        url = area.embedding_base_url
        entries = (*self._allowed().entries, *((urlsplit(url).netloc.rpartition("@")[2],) if url else ()))
        outbound = Outbound(AllowedHosts(entries), self.clock.monotonic)
        return EmbeddingService(url, area.embedding_api_key.get_secret_value(), outbound)

    def _allowed(self) -> AllowedHosts:
        return AllowedHosts(listed(self.settings.knowledge.allowed_hosts))
