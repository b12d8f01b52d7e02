"""sqlite-vec as a vector store (extra ``sqlite-vec``): ``file:///base.db``, read only; must not create anything.

The nearest records come by the table's own metric (its default is L2, not cosine), their cosine is computed by
``vec_distance_cosine`` in the same query. Python's own sqlite3 is often built without extensions, so apsw is used.
"""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tasks.knowledge.found import Hit, Status
from tasks.knowledge.spec import VdbParams
from worker.adapters.knowledge.fault import SearchFault
from worker.adapters.knowledge.vectors import (
    Place,
    candidates,
    check_dimension,
    check_metric,
    missing_extra,
    not_found,
    text_of,
)

MOST_NEIGHBOURS = 4_096  # vec0 gives no more
MOST_QUERIES = 32
_VECTOR = re.compile(r"(?P<name>\w+)\s+float\[(?P<size>\d+)\](?P<rest>[^,)]*)", re.IGNORECASE)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_METRICS = {"l2": "l2", "cosine": "cosine", "l1": "l1"}


@dataclass(frozen=True)
class SqliteVecStore:
    """``VectorStore`` over a ``vec0`` table named by ``index_name``; filters are its metadata columns."""

    monotonic: Callable[[], float] = time.monotonic

    def search(self, vector: Sequence[float], params: VdbParams, place: Place) -> list[Hit]:
        """See :class:`VectorStore`."""
        try:
            apsw, sqlite_vec = import_module("apsw"), import_module("sqlite_vec")
        except ImportError as error:
            raise missing_extra("sqlite-vec") from error
        path = Path(unquote(urlsplit(place.endpoint).path))
        if not path.is_file():
            raise SearchFault(Status.KB_NOT_FOUND, f"there is no file {path.name}: check config.endpoint")
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        except apsw.Error as error:
            raise SearchFault(Status.UNAVAILABLE, f"{path.name} cannot be opened") from error
        try:
            connection.set_busy_timeout(max(1, int((place.deadline - self.monotonic()) * 1000)))
            connection.set_progress_handler(lambda: self.monotonic() > place.deadline, 10_000)
            connection.enable_load_extension(True)  # noqa: FBT003  # apsw's own signature
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)  # noqa: FBT003  # apsw's own signature
            return _ask(connection, vector, params)
        except apsw.InterruptError as error:
            raise SearchFault(Status.TIMEOUT, f"{path.name} was not searched in time") from error
        except apsw.NotADBError as error:
            raise SearchFault(Status.BAD_RESPONSE, f"{path.name} is no SQLite database") from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise SearchFault(Status.UNAVAILABLE, f"{path.name} is locked by a writer", again=True) from error
        except apsw.SQLError as error:
            raise SearchFault(
                Status.MISCONFIGURED, "the table has no such column: check vdb_params.columns and filter"
            ) from error
        finally:
            connection.close()


def _ask(connection: Any, vector: Sequence[float], params: VdbParams) -> list[Hit]:
    row = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (params.index_name,)
    ).fetchone()
    if row is None:
        raise not_found(params)
    metric = _check(str(row[0]), vector, params)
    columns = params.columns
    names = [_column(name) if name else "''" for name in (columns.content, columns.title, columns.url)]
    wanted = struct.pack(f"{len(vector)}f", *vector)
    limit = min(candidates(params, metric), MOST_NEIGHBOURS)
    hits: list[Hit] = []
    for chosen in _choices(params):
        conditions = [f"{_column(name)} IN ({', '.join('?' * len(options))})" for name, options in chosen]
        statement = (
            f"SELECT 1 - vec_distance_cosine({_column(columns.embedding)}, ?), {', '.join(names)} "  # noqa: S608  # quoted identifiers, values bound
            f"FROM {_quoted(params.index_name)} AS t "
            f"WHERE {' AND '.join([f'{_column(columns.embedding)} MATCH ?', 'k = ?', *conditions])}"
        )
        values = [value for _, options in chosen for value in options]
        rows = connection.execute(statement, (wanted, wanted, limit, *values)).fetchall()
        hits += [_hit(found) for found in rows if found[0] is not None]
    return hits


def _choices(params: VdbParams) -> list[tuple[tuple[str, Sequence[object]], ...]]:
    """The filter as conditions a query: vec0 knows ``IN`` for texts and whole numbers, others are asked one by one."""
    together: list[list[tuple[str, Sequence[object]]]] = []
    for name, value in params.filter.items():
        options = value if isinstance(value, list) else [value]
        listed = all(type(option) in (str, int) for option in options)
        together.append([(name, options)] if listed else [(name, [option]) for option in dict.fromkeys(options)])
    if math.prod(map(len, together)) > MOST_QUERIES:
        told = f"filter needs more than {MOST_QUERIES} queries of sqlite-vec: shorten its lists of other than texts"
        raise SearchFault(Status.MISCONFIGURED, told)
    return list(product(*together))


def _check(definition: str, vector: Sequence[float], params: VdbParams) -> str:
    """The table's metric. Raises ``MISCONFIGURED`` for another dimension or metric, or no such column."""
    for column in _VECTOR.finditer(definition):
        if column["name"].lower() == params.columns.embedding.lower():
            check_dimension(params, int(column["size"]), vector)
            told = _METRIC.search(column["rest"])
            metric = _METRICS.get(told.group(1).lower(), "") if told else "l2"
            check_metric(params, metric)
            return metric
    raise SearchFault(
        Status.MISCONFIGURED,
        f"table {params.index_name} has no float vector {params.columns.embedding}: name it in columns.embedding",
    )


def _hit(row: Sequence[Any]) -> Hit:
    record = {"content": row[1], "title": row[2], "url": row[3]}
    return Hit(text_of(record, "content"), text_of(record, "title"), float(row[0]), "cosine", text_of(record, "url"))


def _column(name: str) -> str:
    """With the table before it: SQLite takes a quoted name that is no column for a text, without a word."""
    return f"t.{_quoted(name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
