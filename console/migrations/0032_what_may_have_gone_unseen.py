from django.db import migrations, models
from django.utils import timezone


def remember_compacted(apps, schema_editor):
    """A source that was compacted and is not now may have been until this moment, since nobody kept until when."""
    mirrors = apps.get_model("console", "MirrorTopic").objects
    now, found = timezone.now(), mirrors.filter(was_compacted=True).values_list("pk", "source_configs")
    for pk, configs in list(found):
        if "compact" not in configs.get("cleanup.policy", ""):
            kept_ms = int(configs.get("delete.retention.ms", "86400000"))
            mirrors.filter(pk=pk).update(cleaned_until=now, cleaned_kept_ms=kept_ms)


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0031_what_a_slice_said_last'),
    ]

    operations = [
        migrations.AddField(
            model_name='mirrortopic',
            name='cleaned_until',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='mirrortopic',
            name='cleaned_kept_ms',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='late_since',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='late_until',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='fence_epoch',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='restorerun',
            name='parts',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.RunPython(remember_compacted, migrations.RunPython.noop),
    ]
