"""``reencrypt_credentials``: rewrite stored credentials with the newest key, so that the former one can be taken away."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cryptography.fernet import InvalidToken
from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Model, QuerySet, TextField, Value
from django.db.models.functions import Cast

from console.models.fields import EncryptedJSONField, renewed

BATCH = 200  # rows read at once
REWRITTEN, NEWEST, UNREADABLE, CHANGED = "rewritten", "had the newest key", "unreadable", "changed meanwhile"
ROUNDS = 5  # a process that still puts the former key first may write while this runs


class Command(BaseCommand):
    help = (
        "Rewrite all stored credentials with the first key of CLUSTERLINK_CREDENTIALS_KEY. Safe while the product runs, and "
        "again. Ends with status 1 where credentials are left that need another key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing, only tell what another key is needed for")

    def handle(self, *_args: Any, **options: Any) -> None:
        left = sum(self._field(model, name, check=options["check"]) for model, name in _encrypted())
        if left:
            raise CommandError(
                f"{left} stored credentials still need another key than the first one. Keep the other keys. Run this again "
                "without --check; what is unreadable needs a key that is not in CLUSTERLINK_CREDENTIALS_KEY: add it at the "
                "end, or save the credentials of that cluster or link anew."
            )
        self.stdout.write("All stored credentials have the newest key. The other keys are needed for older backups only.")

    def _field(self, model: type[Model], name: str, *, check: bool) -> int:
        """Bring one column to the newest key and answer how many of its values need another one."""
        counts = _pass(model, name, check=check)
        for _ in range(ROUNDS):
            if check or not counts[CHANGED]:
                break
            again = _pass(model, name, check=False)
            counts = again + Counter({REWRITTEN: counts[REWRITTEN]}) - Counter({NEWEST: counts[REWRITTEN]})
        verbs = {REWRITTEN: "to be rewritten"} if check else {}
        told = (REWRITTEN, NEWEST, UNREADABLE, CHANGED)
        words = ", ".join(f"{counts[kind]} {verbs.get(kind, kind)}" for kind in told if counts[kind] or kind != CHANGED)
        self.stdout.write(f"{model.__name__}.{name}: {words}")
        return counts[UNREADABLE] + counts[CHANGED] + (counts[REWRITTEN] if check else 0)


def _encrypted() -> Iterator[tuple[type[Model], str]]:
    for model in apps.get_models():
        for field in model._meta.get_fields():  # noqa: SLF001 - Django documents it
            if isinstance(field, EncryptedJSONField):
                yield model, field.name


def _stored(model: type[Model], name: str) -> QuerySet[Any]:
    """Choose all rows with the text that is in the database."""
    return model._default_manager.annotate(stored=Cast(name, TextField()))  # noqa: SLF001 - Django documents it


def _pass(model: type[Model], name: str, *, check: bool) -> Counter[str]:
    rows = _stored(model, name).order_by("pk")
    counts: Counter[str] = Counter()
    last: Any = None
    while batch := list((rows.filter(pk__gt=last) if last is not None else rows).values_list("pk", "stored")[:BATCH]):
        counts.update(_renew(model, name, pk, stored, check=check) for pk, stored in batch)
        last = batch[-1][0]
    return counts


def _renew(model: type[Model], name: str, pk: Any, stored: str, *, check: bool) -> str:
    try:
        token = renewed(stored)
    except InvalidToken:
        return UNREADABLE
    if token is None:
        return NEWEST
    unchanged = _stored(model, name).filter(pk=pk, stored=stored)
    if check or unchanged.update(**{name: Value(token, output_field=TextField())}):
        return REWRITTEN
    return CHANGED
