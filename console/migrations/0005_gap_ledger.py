"""Rows of the gap ledger count what they fill, so that they may span records; what was lost knows the times around it."""

from django.db import migrations, models
from django.db.models import F, Q


def count_exact_rows(apps, schema_editor):
    """Every row written so far fills all of its range."""
    apps.get_model("console", "GapRange").objects.update(filled=F("end") - F("start"))


class Migration(migrations.Migration):
    dependencies = [("console", "0004_stop_reports")]

    operations = [
        migrations.AddField("gaprange", "filled", models.BigIntegerField(default=0), preserve_default=False),
        migrations.AddField("gaprange", "before_ms", models.BigIntegerField(null=True)),
        migrations.AddField("gaprange", "after_ms", models.BigIntegerField(null=True)),
        migrations.RunPython(count_exact_rows, migrations.RunPython.noop),
        migrations.AddConstraint(
            "gaprange",
            models.CheckConstraint(condition=Q(filled__gte=1) & Q(filled__lte=F("end") - F("start")), name="gap_is_filled"),
        ),
    ]
