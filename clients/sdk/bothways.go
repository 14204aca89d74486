package main

import (
	"fmt"
	"os"

	kafkarest "github.com/confluentinc/ccloud-sdk-go-v2/kafkarest/v3"
)

const bothWays = "both-ways-by-the-sdk"

// side is one side of a bidirectional link: the link of that name at one cluster.
type side struct {
	cluster string
	other   string
	reach   string // environment variable with the client properties of the other cluster
}

// goBothWays drives the operations that only a bidirectional link has: a topic is reversed, reversed back and paused, failed
// over, and its original restored as a mirror.
func goBothWays() {
	topic := os.Getenv("TOPIC_REVERSED")
	here := side{cluster: cluster, other: os.Getenv("SOURCE_CLUSTER"), reach: "SOURCE_PROPERTIES"}
	there := side{cluster: here.other, other: here.cluster, reach: "DESTINATION_PROPERTIES"}
	here.createSide()
	there.createSide()
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
	expect("a restore is checked and counts what it would truncate", err, accepted(dry) && onlyMarkers(dry))
	done, _, err = api.UpdateKafkaMirrorTopicsTruncateAndRestoreMirror(ctx, there.cluster, bothWays).
		AlterMirrorsRequestData(chosen).Execute()
	expect("a restore is accepted", err, accepted(done))
	until("the original is a mirror", func() bool { return there.has(topic, kafkarest.ACTIVE) })

	for _, s := range []side{there, here} {
		answer, err := api.DeleteKafkaLink(ctx, s.cluster, bothWays).Force(true).Execute()
		expect("a side of the link is deleted with force", err, answer.StatusCode == 200)
		until("the side is gone", s.missing)
	}
}

func (s side) createSide() {
	body := kafkarest.NewCreateLinkRequestData()
	body.SetRemoteClusterId(s.other)
	body.SetConfigs(append(configsOf(s.reach), configOf("link.mode", "BIDIRECTIONAL")))
	answer, err := api.CreateKafkaLink(ctx, s.cluster).LinkName(bothWays).CreateLinkRequestData(*body).Execute()
	expect("a side of a bidirectional link is created", err, answer.StatusCode == 204)
	shown, _, err := api.GetKafkaLink(ctx, s.cluster, bothWays).Execute()
	expect("the side names the other cluster", err, shown.GetRemoteClusterId() == s.other)
}

func (s side) mirror(topic string) kafkarest.ListMirrorTopicsResponseData {
	shown, _, err := api.ReadKafkaMirrorTopic(ctx, s.cluster, bothWays, topic).Execute()
	if err != nil {
		fail("mirror topic "+topic+" is read", err)
	}
	return shown
}

func (s side) has(topic string, wanted kafkarest.MirrorTopicStatus) bool {
	shown, answer, _ := api.ReadKafkaMirrorTopic(ctx, s.cluster, bothWays, topic).Execute()
	return answer != nil && answer.StatusCode == 200 && shown.GetMirrorStatus() == wanted
}

func (s side) missing() bool {
	_, answer, _ := api.GetKafkaLink(ctx, s.cluster, bothWays).Execute()
	return answer != nil && answer.StatusCode == 404
}

// onlyMarkers returns whether a restore would drop no record: at most one offset of each partition, which holds the marker that
// the stop of the reversed mirror has left. The other topic was paused before it had the marker.
func onlyMarkers(answer kafkarest.AlterMirrorStatusResponseDataList) bool {
	for _, row := range answer.GetData() {
		parts := row.PartitionLevelTruncationData.Items
		if row.MessagesTruncated.Get() == nil || row.GetMessagesTruncated() > int64(len(parts)) {
			fmt.Println("a restore would drop", row.MessagesTruncated.Get(), "of", len(parts), "partitions")
			return false
		}
		for _, part := range parts {
			if part.GetMessagesTruncated() > 1 {
				return false
			}
		}
	}
	return true
}
