from django.db import migrations, models


def note_compacted(apps, schema_editor):
    """Of what was compacted before, only the policies of now are known."""
    mirrors = apps.get_model("console", "MirrorTopic").objects
    known = mirrors.values_list("pk", "source_configs", "config_overrides").iterator()
    found = [pk for pk, *sides in known if any("compact" in side.get("cleanup.policy", "") for side in sides)]
    for start in range(0, len(found), 500):
        mirrors.filter(pk__in=found[start : start + 500]).update(was_compacted=True)


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0026_what_a_restore_mirrors'),
    ]

    operations = [
        migrations.AddField(
            model_name='mirrortopic',
            name='was_compacted',
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(note_compacted, migrations.RunPython.noop),
    ]
