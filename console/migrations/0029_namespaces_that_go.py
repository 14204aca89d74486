from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0028_fence_apart'),
    ]

    operations = [
        migrations.AddField(
            model_name='namespace',
            name='deletion_requested_at',
            field=models.DateTimeField(null=True),
        ),
    ]
