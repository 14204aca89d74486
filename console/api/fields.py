"""Strict serializer fields: each accepts values of its JSON type only and neither converts nor trims them."""

from __future__ import annotations

from typing import Any

from django.core.validators import ProhibitNullCharactersValidator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


class TextField(serializers.CharField):
    """A JSON string; blanks are kept."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it is not a string."}

    def __init__(self, **options: Any) -> None:
        """Allow blank text: the actions refuse it where it is wrong, with a specific message."""
        super().__init__(**{"allow_blank": True, "trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Refuse numbers and booleans."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class AnyTextField(TextField):
    """A JSON string of any characters, for values that are not used in database queries."""

    def __init__(self, **options: Any) -> None:
        """Allow NUL, which Django REST framework prohibits by default."""
        super().__init__(**options)
        self.validators = [check for check in self.validators if not isinstance(check, ProhibitNullCharactersValidator)]


class NumberField(serializers.IntegerField):
    """A JSON number without a fraction."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it is not a whole number."}

    def to_internal_value(self, data: Any) -> int:
        """Refuse strings and booleans."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class FlagField(serializers.BooleanField):
    """JSON true or false."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        """Refuse strings and numbers that Django REST framework would convert to a boolean."""
        if not isinstance(data, bool):
            self.fail("invalid")
        return bool(data)


@extend_schema_field(OpenApiTypes.INT64)
class OffsetField(serializers.IntegerField):
    """A Kafka offset or a count in a response."""
