from django.db import migrations, models
from django.db.models import F


def begin_where_known(apps, schema_editor):
    """Say of mirrors that exist when they last had everything, so that an outage during the upgrade is seen as one."""
    apps.get_model("console", "MirrorPartition").objects.exclude(caught_up_at=None).update(whole_at=F("caught_up_at"))


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0022_history_in_order'),
    ]

    operations = [
        migrations.AddField(
            model_name='mirrorpartition',
            name='last_high_watermark',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='whole_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='mirrortopic',
            name='doubted_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.RunPython(begin_where_known, migrations.RunPython.noop),
    ]
