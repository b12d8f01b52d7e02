"""The fields of seed 002's sample with values of our own: what the contract has to take as it stands."""

from __future__ import annotations

SEED_SAMPLE = """\
# one source, every field the contract names
knowledge:
  - id: "market_trends_kb"
    description: "Trends of markets, told by a service"

    # SEMANTIC_API: we send text, the service returns text
    provider_type: "SEMANTIC_API"

    config:
      endpoint: "https://kb.example.com/v1/knowledge/search"
      method: "POST"
      timeout: 15
      headers:
        Authorization: "Bearer {{env.KB_SERVICE_TOKEN}}"

      # has a meaning with VDB_DIRECT only
      vdb_params:
        index_name: "global-trends-idx"
        top_k: 5
        threshold: 0.85
        embedding_model: "text-embedding-3-small"

    injection:
      target_variable: "context_knowledge"
      max_tokens: 1500
      format: "markdown"
"""

NOTHING_MOUNTED = "pipelines: {}\n"
