from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0040_pool_copy_workers'),
    ]

    operations = [
        migrations.AddField(
            model_name='clusterlink',
            name='level_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='behind',
            field=models.BooleanField(default=True),
        ),
    ]
