from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0036_groups_any_name'),
    ]

    operations = [
        migrations.CreateModel(
            name='CopyWorker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField(unique=True)),
                ('worker_id', models.CharField(blank=True, default='', max_length=64)),
                ('submitted_at', models.DateTimeField(null=True)),
                ('left_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('error', models.TextField(blank=True, default='')),
                ('trouble', models.TextField(blank=True, default='')),
                ('failures', models.PositiveIntegerField(default=0)),
                ('retry_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.AddField(
            model_name='mirrorpartition',
            name='worker_id',
            field=models.CharField(blank=True, db_index=True, default='', max_length=64),
        ),
        migrations.RenameField(model_name='mirrorpartition', old_name='slice_id', new_name='hold_id'),
        migrations.RenameField(model_name='mirrorpartition', old_name='slice_bytes', new_name='hold_bytes'),
        migrations.RenameField(model_name='mirrorpartition', old_name='slice_records', new_name='hold_records'),
        migrations.RenameField(model_name='mirrorpartition', old_name='former_slice_id', new_name='former_hold_id'),
        migrations.RemoveField(model_name='clusterlink', name='engine_retry_at'),
        migrations.RemoveField(model_name='clusterlink', name='engine_failures'),
        migrations.DeleteModel(name='CopySlice'),
    ]
