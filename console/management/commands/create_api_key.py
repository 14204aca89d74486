"""``create_api_key <user>``: create an API key and print key and secret as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from console.access.actions import create_api_key
from console.actors import SYSTEM


class Command(BaseCommand):
    help = "Create an API key for a user and print it with its secret. Only a hash of the secret is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--description", default="created on the command line")

    def handle(self, *_args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}. Create one with createsuperuser or in /admin/.")
        row, secret = create_api_key(user=user, description=options["description"], by=SYSTEM, now=timezone.now())
        self.stdout.write(json.dumps({"api_key": row.key, "api_secret": secret}))
