import django.db.models.deletion
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def name_reports(apps, schema_editor):
    """Copy the names of mirrors, links and clusters into the reports of earlier versions, which had a mirror always."""
    report_model = apps.get_model('console', 'StopReport')
    reports = report_model.objects.select_related('mirror__link__destination').defer('partitions', 'refused')
    fields = [
        'link', 'destination', 'drill', 'mirror_name', 'source_topic', 'link_name', 'source_cluster_id',
        'destination_cluster_id',
    ]
    batch = []
    for report in reports.iterator(chunk_size=500):
        mirror = report.mirror
        link = mirror.link
        report.link, report.destination, report.drill_id = link, link.destination, mirror.drill_id
        report.mirror_name, report.source_topic = mirror.name, mirror.source_topic
        report.link_name, report.source_cluster_id = link.name, link.source_cluster_id
        report.destination_cluster_id = link.destination.cluster_id
        batch.append(report)
        if len(batch) == 500:
            report_model.objects.bulk_update(batch, fields)
            batch = []
    report_model.objects.bulk_update(batch, fields)


def assign_clamped(apps, schema_editor):
    """Assign each clamped offset to the first report at or after the start of its stop."""
    reports = apps.get_model('console', 'StopReport').objects.filter(
        mirror=OuterRef('mirror'), writable_at__gte=OuterRef('stopping_since')
    )
    first = reports.order_by('writable_at', 'pk').values('pk')[:1]
    apps.get_model('console', 'ClampedOffset').objects.update(report=Subquery(first))


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0050_bulk_operations'),
    ]

    operations = [
        migrations.AddField(
            model_name='stopreport',
            name='link',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='stop_reports', to='console.clusterlink'),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='destination',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='stop_reports', to='console.cluster'),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='drill',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='stop_reports', to='console.drill'),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='mirror_name',
            field=models.CharField(default='', max_length=249),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='stopreport',
            name='source_topic',
            field=models.CharField(blank=True, default='', max_length=249),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='link_name',
            field=models.CharField(default='', max_length=249),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='stopreport',
            name='source_cluster_id',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='destination_cluster_id',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='operation_number',
            field=models.PositiveBigIntegerField(db_index=True, null=True),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='request_reason',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='stopreport',
            name='checklist',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='clampedoffset',
            name='report',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='clamped', to='console.stopreport'),
        ),
        migrations.AlterField(
            model_name='stopreport',
            name='mirror',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='stop_reports', to='console.mirrortopic'),
        ),
        migrations.AlterField(
            model_name='clampedoffset',
            name='mirror',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='clamped_offsets', to='console.mirrortopic'),
        ),
        migrations.AddField(
            model_name='drill',
            name='canceled_by',
            field=models.CharField(blank=True, default='', max_length=150),
        ),
        migrations.AlterField(
            model_name='drill',
            name='status',
            field=models.CharField(
                choices=[
                    ('PREPARING', 'Preparing'), ('FAILING_OVER', 'Failing Over'), ('CHECKING', 'Checking'),
                    ('CLEANING', 'Cleaning'), ('PASSED', 'Passed'), ('FAILED', 'Failed'), ('CANCELED', 'Canceled'),
                ],
                default='PREPARING',
                max_length=15,
            ),
        ),
        # Last: PostgreSQL does not alter a table with pending foreign-key checks.
        migrations.RunPython(name_reports, migrations.RunPython.noop),
        migrations.RunPython(assign_clamped, migrations.RunPython.noop),
    ]
