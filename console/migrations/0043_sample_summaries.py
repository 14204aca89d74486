import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0042_position_of_config_sync'),
    ]

    operations = [
        migrations.CreateModel(
            name='LinkSampleSummary',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_index=True)),
                ('seconds', models.PositiveIntegerField()),
                ('samples', models.PositiveIntegerField()),
                ('unknown', models.PositiveIntegerField()),
                ('unknown_ms', models.PositiveIntegerField()),
                ('lag', models.BigIntegerField(null=True)),
                ('lag_ms', models.BigIntegerField(null=True)),
                ('bytes_per_s', models.FloatField(null=True)),
                ('records_per_s', models.FloatField(null=True)),
                ('link', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sample_summaries', to='console.clusterlink')),
            ],
            options={
                'ordering': ['at'],
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('link', 'seconds', 'at'), name='link_summary_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='MirrorSampleSummary',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_index=True)),
                ('seconds', models.PositiveIntegerField()),
                ('samples', models.PositiveIntegerField()),
                ('unknown', models.PositiveIntegerField()),
                ('unknown_ms', models.PositiveIntegerField()),
                ('lag', models.BigIntegerField(null=True)),
                ('lag_ms', models.BigIntegerField(null=True)),
                ('bytes_per_s', models.FloatField(null=True)),
                ('records_per_s', models.FloatField(null=True)),
                ('mirror', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sample_summaries', to='console.mirrortopic')),
            ],
            options={
                'ordering': ['at'],
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('mirror', 'seconds', 'at'), name='mirror_summary_is_unique')],
            },
        ),
    ]
