"""Updates many rows with different values by a prepared statement.

About a hundred times faster than ``bulk_update``, which builds a huge CASE expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import Model

Row = tuple[Sequence[Any], Sequence[Any]]  # values of the fields, values of the keys


def update_each(model: type[Model], *, fields: Sequence[str], keys: Sequence[str], rows: Iterable[Row]) -> None:
    """Set the fields of the rows with these keys, all or none. Keys without a row are skipped."""
    known: Any = {field.name: field for field in model._meta.concrete_fields}  # noqa: SLF001 - Django documents it
    written, chosen = [known[name] for name in fields], [known[name] for name in keys]
    quote = connection.ops.quote_name
    values, where = ([f"{quote(field.column)} = %s" for field in group] for group in (written, chosen))
    table = quote(model._meta.db_table)  # noqa: SLF001
    statement = f"UPDATE {table} SET {', '.join(values)} WHERE {' AND '.join(where)}"  # noqa: S608 - names of the model only
    prepared = [_prepared(written, new) + _prepared(chosen, key) for new, key in rows]
    if prepared:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(statement, prepared)


def _prepared(fields: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    return [field.get_db_prep_save(value, connection) for field, value in zip(fields, values, strict=True)]
