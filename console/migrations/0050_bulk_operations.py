import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('console', '0043_sample_summaries'),
    ]

    operations = [
        migrations.CreateModel(
            name='BulkOperation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operation', models.CharField(max_length=30)),
                ('options', models.JSONField(default=dict)),
                ('requested_by', models.CharField(max_length=150)),
                ('requested_at', models.DateTimeField()),
                ('request_id', models.CharField(blank=True, default='', max_length=64)),
                ('client_address', models.CharField(blank=True, default='', max_length=64)),
                ('canceled_by', models.CharField(blank=True, default='', max_length=150)),
                ('finished_at', models.DateTimeField(null=True)),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='bulk_operations', to='console.clusterlink')),
                ('retry_of', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='retries', to='console.bulkoperation')),
                ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='bulk_operations', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='BulkOperationTopic',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=249)),
                ('mirror_key', models.BigIntegerField(null=True)),
                ('seen', models.CharField(blank=True, default='', max_length=80)),
                ('status', models.CharField(choices=[('WAITING', 'Waiting'), ('ACCEPTED', 'Accepted'), ('FAILED', 'Failed'), ('CANCELED', 'Canceled')], default='WAITING', max_length=10)),
                ('error_code', models.CharField(blank=True, default='', max_length=60)),
                ('message', models.TextField(blank=True, default='')),
                ('done_at', models.DateTimeField(null=True)),
                ('operation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='topics', to='console.bulkoperation')),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(fields=('operation', 'name'), name='bulk_operation_names_a_topic_once')],
            },
        ),
    ]
