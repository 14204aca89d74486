package main

import (
	"os"

	kafkarest "github.com/confluentinc/ccloud-sdk-go-v2/kafkarest/v3"
)

const bothWays = "both-ways-by-the-sdk"

// side is one half of a bidirectional link: the link of that name at one cluster.
type side struct {
	cluster string
	other   string
	reach   string // environment variable with the properties by which the other cluster is reached
}

// goBothWays drives the three operations that only a bidirectional link has: a topic is reversed, reversed back and paused,
// failed over, and its original restored as a mirror.
func goBothWays() {
	topic := os.Getenv("TOPIC_REVERSED")
	here := side{cluster: cluster, other: os.Getenv("SOURCE_CLUSTER"), reach: "SOURCE_PROPERTIES"}
	there := side{cluster: here.other, other: here.cluster, reach: "DESTINATION_PROPERTIES"}
	here.createHalf()
	there.createHalf()
	body := kafkarest.NewCreateMirrorTopicRequestData(topic)
	answer, err := api.CreateKafkaMirrorTopic(ctx, here.cluster, bothWays).CreateMirrorTopicRequestData(*body).Execute()
	expect("mirror topic "+topic+" is created", err, answer.StatusCode == 204)
	until("mirror topic "+topic+" holds every record", func() bool { return hasCaughtUp(here.mirror(topic)) })

	chosen := *names(topic)
	done, _, err := api.UpdateKafkaMirrorTopicsReverseAndStartMirror(ctx, here.cluster, bothWays).
		AlterMirrorsRequestData(chosen).Execute()
	expect("a reversal is accepted", err, accepted(done))
	until("the other topic is the mirror now", func() bool {
		return here.has(topic, kafkarest.STOPPED) && there.has(topic, kafkarest.ACTIVE)
	})
	done, _, err = api.UpdateKafkaMirrorTopicsReverseAndPauseMirror(ctx, there.cluster, bothWays).
		AlterMirrorsRequestData(chosen).Execute()
	expect("a reversal with a pause is accepted", err, accepted(done))
	until("the first topic is the mirror again, and paused", func() bool {
		return there.has(topic, kafkarest.STOPPED) && here.has(topic, kafkarest.PAUSED)
	})
	done, _, err = api.UpdateKafkaMirrorTopicsFailover(ctx, here.cluster, bothWays).AlterMirrorsRequestData(chosen).Execute()
	expect("a failover of the paused topic is accepted", err, accepted(done))
	until("both topics are stopped", func() bool { return here.has(topic, kafkarest.STOPPED) })

	dry, _, err := api.UpdateKafkaMirrorTopicsTruncateAndRestoreMirror(ctx, there.cluster, bothWays).
		ValidateOnly(true).IncludePartitionLevelTruncationData(true).AlterMirrorsRequestData(chosen).Execute()
	expect("a restore is checked and counts what it would truncate", err, accepted(dry) && truncates(dry) == 0)
	done, _, err = api.UpdateKafkaMirrorTopicsTruncateAndRestoreMirror(ctx, there.cluster, bothWays).
		AlterMirrorsRequestData(chosen).Execute()
	expect("a restore is accepted", err, accepted(done))
	until("the original is a mirror", func() bool { return there.has(topic, kafkarest.ACTIVE) })

	for _, one := range []side{there, here} {
		answer, err := api.DeleteKafkaLink(ctx, one.cluster, bothWays).Force(true).Execute()
		expect("a half of the link is deleted with force", err, answer.StatusCode == 200)
		until("the half is gone", one.missing)
	}
}

func (one side) createHalf() {
	body := kafkarest.NewCreateLinkRequestData()
	body.SetRemoteClusterId(one.other)
	body.SetConfigs(append(configsOf(one.reach), configOf("link.mode", "BIDIRECTIONAL")))
	answer, err := api.CreateKafkaLink(ctx, one.cluster).LinkName(bothWays).CreateLinkRequestData(*body).Execute()
	expect("a half of a bidirectional link is created", err, answer.StatusCode == 204)
	shown, _, err := api.GetKafkaLink(ctx, one.cluster, bothWays).Execute()
	expect("the half names the other cluster", err, shown.GetRemoteClusterId() == one.other)
}

func (one side) mirror(topic string) kafkarest.ListMirrorTopicsResponseData {
	shown, _, err := api.ReadKafkaMirrorTopic(ctx, one.cluster, bothWays, topic).Execute()
	if err != nil {
		fail("mirror topic "+topic+" is read", err)
	}
	return shown
}

func (one side) has(topic string, wanted kafkarest.MirrorTopicStatus) bool {
	shown, answer, _ := api.ReadKafkaMirrorTopic(ctx, one.cluster, bothWays, topic).Execute()
	return answer != nil && answer.StatusCode == 200 && shown.GetMirrorStatus() == wanted
}

func (one side) missing() bool {
	_, answer, _ := api.GetKafkaLink(ctx, one.cluster, bothWays).Execute()
	return answer != nil && answer.StatusCode == 404
}

func truncates(answer kafkarest.AlterMirrorStatusResponseDataList) int64 {
	total := int64(0)
	for _, row := range answer.GetData() {
		if row.MessagesTruncated.Get() == nil {
			return -1 // nobody knows
		}
		total += row.GetMessagesTruncated()
	}
	return total
}
