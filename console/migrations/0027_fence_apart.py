from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0026_what_a_restore_mirrors'),
    ]

    operations = [
        migrations.AddField(
            model_name='mirrorpartition',
            name='fenced_end',
            field=models.BigIntegerField(null=True),
        ),
    ]
