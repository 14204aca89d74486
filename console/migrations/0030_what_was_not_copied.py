from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0029_namespaces_that_go'),
    ]

    operations = [
        migrations.AlterModelOptions(name='gaterun', options={'ordering': ['-id']}),
        migrations.AlterModelOptions(name='verifyrun', options={'ordering': ['-id']}),
        migrations.AddField(
            model_name='verifyrun',
            name='not_copied',
            field=models.BigIntegerField(null=True),
        ),
    ]
