"""``reencrypt_credentials``: encrypt stored credentials with the newest key, so that former keys can be removed.

A row is updated only if its ciphertext has not changed since it was read, so concurrent changes are never overwritten.
"""

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

from console.access.second_factor import renew_secrets
from console.models.fields import EncryptedJSONField, renewed

BATCH = 200  # rows read at once
REWRITTEN, NEWEST, UNREADABLE, CHANGED = "rewritten", "had the newest key", "unreadable", "changed during the run"
ROUNDS = 5  # processes that were not restarted yet may write with the former key during the run


class Command(BaseCommand):
    help = (
        "Encrypt all stored credentials with the first key of CLUSTERLINK_CREDENTIALS_KEY. Safe to run while the product is in "
        "use, and to repeat. Exits with 1 if credentials remain that need another key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing, only count credentials by key")

    def handle(self, *_args: Any, **options: Any) -> None:
        remaining = sum(self._reencrypt(model, name, check=options["check"]) for model, name in _encrypted_fields())
        remaining += self._second_factors(check=options["check"])
        if remaining:
            raise CommandError(
                f"{remaining} stored credentials still need another key than the first one. Keep the other keys and run this "
                "command again without --check. Unreadable credentials need a key that is not in CLUSTERLINK_CREDENTIALS_KEY: "
                "add it at the end, or enter the credentials of that cluster or link again."
            )
        self.stdout.write("All stored credentials have the newest key. The other keys are needed for older backups only.")

    def _second_factors(self, *, check: bool) -> int:
        """Encrypt the secrets of second factors with the newest key; return how many still need another key."""
        counts: Counter[str] = Counter()
        try:
            counts.update(REWRITTEN if other else NEWEST for other in renew_secrets(renewed, check=check))
        except InvalidToken:
            counts[UNREADABLE] += 1
            self.stdout.write("A secret of a second factor is unreadable. Its user has to set it up again.")
        if counts:
            kinds = ", ".join(f"{counts[kind]} {kind}" for kind in (REWRITTEN, NEWEST, UNREADABLE) if counts[kind])
            self.stdout.write(f"Second factors: {kinds}")
        return counts[UNREADABLE] + (counts[REWRITTEN] if check else 0)

    def _reencrypt(self, model: type[Model], name: str, *, check: bool) -> int:
        """Encrypt a column with the newest key, print the counts, and return how many values still need another key."""
        counts = _pass(model, name, check=check)
        for _ in range(ROUNDS):
            if check or not counts[CHANGED]:
                break
            retried = _pass(model, name, check=False)
            counts = retried + Counter({REWRITTEN: counts[REWRITTEN]}) - Counter({NEWEST: counts[REWRITTEN]})
        labels = {REWRITTEN: "to be rewritten"} if check else {}
        kinds = (REWRITTEN, NEWEST, UNREADABLE, CHANGED)
        summary = ", ".join(f"{counts[kind]} {labels.get(kind, kind)}" for kind in kinds if counts[kind] or kind != CHANGED)
        self.stdout.write(f"{model.__name__}.{name}: {summary}")
        return counts[UNREADABLE] + counts[CHANGED] + (counts[REWRITTEN] if check else 0)


def _encrypted_fields() -> Iterator[tuple[type[Model], str]]:
    for model in apps.get_models():
        for field in model._meta.get_fields():  # noqa: SLF001 - documented by Django
            if isinstance(field, EncryptedJSONField):
                yield model, field.name


def _stored(model: type[Model], name: str) -> QuerySet[Any]:
    """Return all rows with the ciphertext of the field as ``stored``."""
    return model._default_manager.annotate(stored=Cast(name, TextField()))  # noqa: SLF001 - documented by Django


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
