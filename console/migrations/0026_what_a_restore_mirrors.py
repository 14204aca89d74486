from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0025_one_binding_each'),
    ]

    operations = [
        migrations.AddField(
            model_name='restorerun',
            name='source_topic_id',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
    ]
