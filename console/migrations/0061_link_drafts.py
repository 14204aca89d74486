import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import console.models.fields


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('console', '0050_bulk_operations'),
    ]

    operations = [
        migrations.CreateModel(
            name='LinkDraft',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('values', console.models.fields.EncryptedJSONField(default=dict)),
                ('checks', console.models.fields.EncryptedJSONField(default=dict)),
                ('listing', console.models.fields.EncryptedJSONField(default=dict)),
                ('listed_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='link_drafts', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-updated_at'],
            },
        ),
    ]
