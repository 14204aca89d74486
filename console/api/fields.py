"""Serializer fields that take a value of their JSON type or refuse it; nothing is coerced, trimmed or guessed."""

from __future__ import annotations

from typing import Any

from django.core.validators import ProhibitNullCharactersValidator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


class TextField(serializers.CharField):
    """A JSON string, blanks kept."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it is not a string."}

    def __init__(self, **options: Any) -> None:
        """Let the domain decide whether empty is wrong; it says so in better words."""
        super().__init__(**{"allow_blank": True, "trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Refuse numbers and booleans."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class AnyTextField(TextField):
    """A JSON string of any characters; for what no database looks for."""

    def __init__(self, **options: Any) -> None:
        """Allow NUL, which the framework refuses."""
        super().__init__(**options)
        self.validators = [one for one in self.validators if not isinstance(one, ProhibitNullCharactersValidator)]


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

    default_error_messages = {"invalid": "Cannot deserialize the value: it is true or false."}

    def to_internal_value(self, data: Any) -> bool:
        """Refuse words and numbers that could be read as a boolean."""
        if not isinstance(data, bool):
            self.fail("invalid")
        return bool(data)


@extend_schema_field(OpenApiTypes.INT64)
class OffsetField(serializers.IntegerField):
    """A Kafka offset or a count in an answer."""
