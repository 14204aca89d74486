from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0041_samples_of_progress'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='mirrortopic',
            name='synced_at',
        ),
        migrations.AddField(
            model_name='clusterlink',
            name='config_sync_position',
            field=models.BigIntegerField(null=True),
        ),
    ]
