"""PostgreSQL with pgvector as a vector store (extra ``pgvector``); must only read, and only one table.

The cosine is always ``1 - (embedding <=> question)``; ``metric`` only chooses the operator that orders, so that the
index made for it is used. Values are parameters, names are quoted identifiers: no text of the file becomes SQL.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from tasks.knowledge.found import Hit, Status
from tasks.knowledge.spec import VdbParams
from worker.adapters.knowledge.fault import SearchFault
from worker.adapters.knowledge.vectors import Place, candidates, check_dimension, missing_extra, not_found, text_of
from worker.outbound import AllowedHosts, OutboundError, Resolve, checked_addresses, resolve_by_system

OPERATORS = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_SHORTEST_S = 0.05
_FAULTS: Mapping[str, tuple[Status, str]] = {
    "28P01": (Status.UNAUTHORIZED, "PostgreSQL refused the password: check {{env.X}} in config.endpoint"),
    "28000": (Status.UNAUTHORIZED, "PostgreSQL refused this user"),
    "42501": (Status.UNAUTHORIZED, "this PostgreSQL user may not read the table"),
    "3D000": (Status.KB_NOT_FOUND, "there is no such database: check config.endpoint"),
    "42703": (Status.MISCONFIGURED, "the table has no such column: check vdb_params.columns and filter"),
    "42883": (Status.MISCONFIGURED, "the column is no vector, or pgvector is not installed in this database"),
    "42704": (Status.MISCONFIGURED, "pgvector is not installed in this database: CREATE EXTENSION vector"),
    "57014": (Status.TIMEOUT, "PostgreSQL did not answer in time"),
}


@dataclass(frozen=True)
class PgvectorStore:
    """``VectorStore`` over ``postgresql://user:{{env.X}}@host/database``; ``index_name``: ``[schema.]table``.

    libpq bounds connecting and the server bounds a statement, but a server that falls silent is bounded by neither: so
    the work is done in a thread that is not waited for any longer.
    """

    allowed: AllowedHosts
    monotonic: Callable[[], float] = time.monotonic
    resolve: Resolve = resolve_by_system
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4), repr=False)

    def search(self, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        """See :class:`VectorStore`."""
        try:
            psycopg = import_module("psycopg")
        except ImportError as error:
            raise missing_extra("pgvector") from error
        waiting = self.threads.submit(self._connected, psycopg, vector, params, place)
        try:
            return waiting.result(self._left(place))
        except FutureTimeoutError as error:
            waiting.cancel()
            raise SearchFault(*_FAULTS["57014"]) from error
        except psycopg.Error as error:
            raise _translated(error, params) from error

    def _connected(self, psycopg: Any, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        with psycopg.connect(place.endpoint, **self._reach(place), autocommit=True) as connection:
            return self._ask(connection, vector, params, place)

    def _reach(self, place: Place) -> dict[str, Any]:
        """The checked address and the time for connecting."""
        told = import_module("psycopg.conninfo").conninfo_to_dict(place.endpoint)  # what libpq itself would go by
        host, port = str(told.get("hostaddr") or told.get("host") or ""), str(told.get("port") or "5432")
        options: dict[str, Any] = {"connect_timeout": max(2, math.ceil(self._left(place))), "application_name": "kbw"}
        if "," in host + port:
            raise SearchFault(Status.MISCONFIGURED, "the endpoint names several hosts: write one source for each")
        if not host or host.startswith("/"):
            if not self.allowed.names("localhost", int(port)):
                cure = "a local PostgreSQL socket needs localhost in KBW_KNOWLEDGE_ALLOWED_HOSTS"
                raise SearchFault(Status.MISCONFIGURED, cure)
            return options
        try:
            address = checked_addresses(host, int(port), self.allowed, self.resolve)[0]
        except OutboundError as error:
            raise SearchFault(Status.MISCONFIGURED, error.detail) from error
        listed = self.allowed.names(host, int(port)) or self.allowed.holds(ip_address(address))
        if not listed and told.get("sslmode") not in _ENCRYPTED:
            cure = "add ?sslmode=verify-full to the endpoint, or the host to KBW_KNOWLEDGE_ALLOWED_HOSTS"
            raise SearchFault(Status.MISCONFIGURED, f"{host} may not be called without TLS: {cure}")
        options["hostaddr"] = address
        return options

    def _ask(self, connection: Any, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        sql = import_module("psycopg.sql")
        connection.execute("SET default_transaction_read_only = on")
        connection.execute("SELECT set_config('statement_timeout', %s, false)", [str(int(self._left(place) * 1000))])
        table = sql.Identifier(*params.index_name.split(".", 1))
        named = table.as_string(connection)
        size = connection.execute(
            "SELECT a.atttypmod FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attname = %s",
            [named, params.columns.embedding],
        ).fetchone()
        if size is None and connection.execute("SELECT to_regclass(%s)", [named]).fetchone()[0] is None:
            raise not_found(params)
        if size is not None and size[0] > 0:
            check_dimension(params, size[0], vector)
        statement, values = _statement(sql, table, vector, params)
        rows = connection.execute(statement, values).fetchall()
        return [_hit(row) for row in rows if row[0] is not None and not math.isnan(row[0])]

    def _left(self, place: Place) -> float:
        left = place.deadline - self.monotonic()
        if left < _SHORTEST_S:
            raise SearchFault(Status.TIMEOUT, "no time was left to ask PostgreSQL")
        return left


def _statement(sql: Any, table: Any, vector: Sequence[float], params: VdbParams) -> tuple[Any, list[object]]:
    columns = params.columns
    text = "[" + ",".join(repr(float(number)) for number in vector) + "]"
    embedding = sql.Identifier(columns.embedding)
    picked = [
        sql.SQL("{}::text").format(sql.Identifier(name)) if name else sql.SQL("''")
        for name in (columns.content, columns.title, columns.url)
    ]
    where = [sql.SQL("{} IS NOT NULL").format(embedding)]
    values: list[object] = [text]
    for name, value in params.filter.items():
        wanted = [str(one) if not isinstance(one, bool) else str(one).lower() for one in _as_list(value)]
        if columns.metadata:
            where.append(sql.SQL("{}->>{} = ANY(%s)").format(sql.Identifier(columns.metadata), sql.Literal(name)))
        else:
            where.append(sql.SQL("{}::text = ANY(%s)").format(sql.Identifier(name)))
        values.append(wanted)
    metric = params.metric or "cosine"
    statement = sql.SQL(
        "SELECT 1 - ({e} <=> %s::vector), {picked} FROM {table} WHERE {where} ORDER BY {e} {op} %s::vector LIMIT %s"
    ).format(
        e=embedding,
        picked=sql.SQL(", ").join(picked),
        table=table,
        where=sql.SQL(" AND ").join(where),
        op=sql.SQL(OPERATORS[metric]),
    )
    return statement, [*values, text, candidates(params, metric)]


def _hit(row: Sequence[Any]) -> Hit:
    record = {"content": row[1], "title": row[2], "url": row[3]}
    return Hit(text_of(record, "content"), text_of(record, "title"), float(row[0]), "cosine", text_of(record, "url"))


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _translated(error: Any, params: VdbParams) -> SearchFault:
    """What an error of PostgreSQL means; its text may hold values, so it is not repeated."""
    code = error.sqlstate or ""
    if code in ("42P01", "3F000"):
        return not_found(params)
    if code == "22000" and "dimensions" in str(error):
        return SearchFault(
            Status.MISCONFIGURED, f"{params.index_name} was made by a model of other dimensions: set embedding_model"
        )
    if code in _FAULTS:
        return SearchFault(*_FAULTS[code])
    if code.startswith(("08", "57", "53")) or not code:
        text = str(error).lower()
        if "password" in text or "authentication" in text:
            return SearchFault(*_FAULTS["28P01"])
        if "does not exist" in text and "database" in text:
            return SearchFault(*_FAULTS["3D000"])
        if "timeout" in text:
            return SearchFault(Status.TIMEOUT, "PostgreSQL did not answer in time")
        return SearchFault(Status.UNAVAILABLE, "PostgreSQL cannot be reached", again=True)
    return SearchFault(Status.BAD_RESPONSE, f"PostgreSQL refused the query (SQLSTATE {code})")
