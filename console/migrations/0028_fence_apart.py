from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0027_was_compacted'),
    ]

    operations = [
        migrations.AddField(
            model_name='mirrorpartition',
            name='fenced_end',
            field=models.BigIntegerField(null=True),
        ),
    ]
