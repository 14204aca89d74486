from django.db import migrations, models

from linkengine.domain.linkaddresses import uses_registered_security


def keep_working_links(apps, schema_editor):
    """Mark the links that sign in with the credentials of their registered source: until now this was not recorded."""
    links = apps.get_model("console", "ClusterLink").objects
    for link in links.exclude(source=None).select_related("source"):
        inbound = link.mode == "DESTINATION" and link.connection_mode == "INBOUND"
        if not inbound and uses_registered_security(link.properties, link.source.properties):
            links.filter(pk=link.pk).update(uses_cluster_credentials=True)


class Migration(migrations.Migration):

    dependencies = [
        ('console', '0032_what_may_have_gone_unseen'),
    ]

    operations = [
        migrations.AddField(
            model_name='clusterlink',
            name='uses_cluster_credentials',
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(keep_working_links, migrations.RunPython.noop),
    ]
