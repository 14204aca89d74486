"""Names of consumer groups may have any length and any character; a key of fixed length keeps them unique."""

import hashlib

from django.db import migrations, models

import console.models.fields

_KEYS = (("SyncedGroup", "name", "name_key"), ("ClampedOffset", "group", "group_key"))


def fill_keys(apps, _schema_editor):
    for model_name, field, key in _KEYS:
        model = apps.get_model("console", model_name)
        rows = []
        for row in model.objects.only("pk", field).iterator(2000):
            setattr(row, key, hashlib.sha256(getattr(row, field).encode()).hexdigest())
            rows.append(row)
            if len(rows) == 2000:
                model.objects.bulk_update(rows, [key])
                rows = []
        model.objects.bulk_update(rows, [key])


class Migration(migrations.Migration):

    dependencies = [
        ("console", "0035_failover_refused_steps"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="clampedoffset",
            name="offset_is_clamped_once",
        ),
        migrations.RemoveConstraint(
            model_name="syncedgroup",
            name="group_is_unique_on_its_link",
        ),
        migrations.AddField(
            model_name="clampedoffset",
            name="group_key",
            field=console.models.fields.KeyOfField(default="", editable=False, max_length=64, of="group"),
        ),
        migrations.AddField(
            model_name="syncedgroup",
            name="name_key",
            field=console.models.fields.KeyOfField(default="", editable=False, max_length=64, of="name"),
        ),
        migrations.AlterField(
            model_name="clampedoffset",
            name="group",
            field=console.models.fields.AnyTextField(),
        ),
        migrations.AlterField(
            model_name="syncedgroup",
            name="destination_name",
            field=console.models.fields.AnyTextField(),
        ),
        migrations.AlterField(
            model_name="syncedgroup",
            name="name",
            field=console.models.fields.AnyTextField(),
        ),
        migrations.RunPython(fill_keys, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="clampedoffset",
            constraint=models.UniqueConstraint(
                fields=("mirror", "stopping_since", "group_key", "partition"), name="offset_is_clamped_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="syncedgroup",
            constraint=models.UniqueConstraint(fields=("link", "name_key"), name="group_is_unique_on_its_link"),
        ),
    ]
