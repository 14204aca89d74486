from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0029_namespaces_that_go'),
    ]

    operations = [
        migrations.AddField(
            model_name='verifyrun',
            name='not_copied',
            field=models.BigIntegerField(null=True),
        ),
    ]
